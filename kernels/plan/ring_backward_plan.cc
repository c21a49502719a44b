#include "kernels/plan/ring_backward_plan.h"

#include <algorithm>
#include <utility>

namespace attnd::plan {
namespace {

// At this turn of theirs.
bool SeesTheSame(const RingPlaces::Rows& rows, size_t turn,
                 const RingPlaces::Seen& seen) {
  const auto& columns = rows.turns[turn].columns;
  return std::any_of(columns.begin(), columns.end(),
                     [&](const RingPlaces::Seen& other) {
                       return other.step == seen.step && other.r == seen.r;
                     });
}

}  // namespace

RingBackwardPlan::RingBackwardPlan(const PlanRequest& request, int devices,
                                   const Sections& section_ends)
    : RingPlan(request, devices),
      section_ends_(section_ends),
      of_sections_(rows_.size(),
                   std::vector<SectionRows>(section_ends.size())) {}

Run RingBackwardPlan::HeadsOf(int32_t sequence, size_t section) const {
  const HeadRange range =
      SectionHeads(ShapeOf(sequence), section_ends_, static_cast<int>(section));
  return {range.head, range.heads};
}

Slice RingBackwardPlan::SliceOf(const Rows& rows, size_t section) const {
  const Run heads = HeadsOf(rows.sequence, section);
  return builder_.RowsOf(rows.sequence, heads.first, heads.count,
                         rows.place.run);
}

void RingBackwardPlan::FindDeltas() {
  for (Rows& rows : rows_) FindDelta(rows);
}

// Of O, for all turns; dQ then takes O's memory.
void RingBackwardPlan::FindDelta(Rows& rows) {
  std::optional<int>& delta = rows.inputs[TensorId::kDelta];
  if (delta.has_value()) return;
  const int device = rows.place.device;
  delta = builder_.NewBuffer(device, TensorId::kDelta, DType::kF32,
                             RingPlan::SliceOf(rows));
  for (size_t section = 0; section < section_ends_.size(); ++section) {
    const Slice slice = SliceOf(rows, section);
    if (slice.heads == 0) continue;
    const int o =
        builder_.NewBuffer(device, TensorId::kO,
                           *ShapeOf(rows.sequence).inputs[TensorId::kO], slice);
    const int uploaded = builder_.UploadAll(o);
    const int d_o = *rows.inputs[TensorId::kDO];
    SectionRows& of = SectionOf(rows, section);
    of.dq = o;
    of.dotted = {builder_.Add(device, Dot{d_o, o, *delta, slice},
                              {rows.uploads[TensorId::kDO], uploaded})};
  }
}

// Rows of one sequence take turns, as they add to the same columns.
void RingBackwardPlan::ComputePhase(int device, int phase, size_t section,
                                    AddGradients add) {
  std::vector<Rows*> due = Due(device, phase);
  std::erase_if(due, [&](const Rows* rows) {
    return HeadsOf(rows->sequence, section).empty();
  });
  while (!due.empty()) {
    std::vector<Rows*> now, later;
    for (Rows* rows : due) {
      const bool first = now.empty() || now.back()->sequence != rows->sequence;
      (first ? now : later).push_back(rows);
    }
    ComputeRows(device, section, now, later, add);
    due = std::move(later);
  }
}

void RingBackwardPlan::ComputeRows(int device, size_t section,
                                   const std::vector<Rows*>& now,
                                   const std::vector<Rows*>& later,
                                   AddGradients add) {
  Compute compute;
  Adding adding;
  for (const Rows* rows : now) {
    Part part = PartOf(*rows, HeadsOf(rows->sequence, section));
    for (size_t c = 0; c < part.columns.size(); ++c) {
      const RingPlaces::Seen& seen = rows->next().columns[c];
      const bool last =
          std::none_of(later.begin(), later.end(), [&](const Rows* other) {
            return other->sequence == rows->sequence &&
                   SeesTheSame(other->place, other->turn, seen);
          });
      add(rows->sequence, seen, last, part.columns[c], adding);
    }
    compute.parts.push_back(std::move(part));
  }
  for (size_t i = 0; i < now.size(); ++i) {
    AddDq(*now[i], section, compute.parts[i]);
    Append(SectionOf(*now[i], section).dotted, adding.after);
  }
  adding.Tell(AddCompute(device, now, std::move(compute),
                         std::move(adding.after), section));
}

// In place, unless it is rounded.
void RingBackwardPlan::AddDq(Rows& rows, size_t section, Part& part) {
  const auto& wanted = ShapeOf(rows.sequence).outputs[TensorId::kDQ];
  if (!wanted.has_value()) return;
  const DType dtype = rows.is_last_turn() ? *wanted : DType::kF32;
  std::optional<int>& dq = SectionOf(rows, section).dq;
  const bool first = rows.turn == 0;
  if (!first) part.dq_before = dq;
  dq = builder_.NewBuffer(rows.place.device, TensorId::kDQ, dtype,
                          SliceOf(rows, section),
                          first || dtype == DType::kF32 ? dq : std::nullopt);
  part.buffers[TensorId::kDQ] = dq;
  if (rows.is_last_turn()) rows.outputs.emplace_back(*dq, section);
}

}  // namespace attnd::plan
