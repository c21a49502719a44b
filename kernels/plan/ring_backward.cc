// `ring`, `striped` and `zigzag`, backward. K and V go round as in forward, and
// dK and dV of a block in f32 behind them: a device pulls what the one before
// it has of them, and adds its rows' part while it computes. So to block c
// devices c, c + 1, ... add in this order, which never depends on who is
// faster. dQ stays, each turn of its rows adds to it, and the last one rounds.
//
// What a device is to add to is complete when the device before it has computed
// the step before. So that pulling it hides behind computing, a step is
// computed in two sections of heads: gradients of one are pulled while the
// other is computed.
//
// Of a block some columns may go further than others. A device computes all
// that is there of a run of which it sees anything, as all of it goes on.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/plan/gather.h"
#include "kernels/plan/ring_gradients.h"
#include "kernels/plan/ring_plan.h"

namespace attnd::plan {
namespace {

// One where there are no two heads.
Sections SectionsOf(const PlanRequest& request) {
  for (const ProblemShape& shape : request.problems) {
    if (shape.kv_heads > 1) return {0.5, 1};
  }
  return {1};
}

class RingBackward : private RingPlan {
 public:
  RingBackward(const PlanRequest& request, int devices)
      : RingPlan(request, devices), section_ends_(SectionsOf(request)) {
    std::vector<const RingPlaces*> places;
    places.reserve(all_.size());
    for (const Sequence& sequence : all_) places.push_back(&sequence.places);
    for (size_t section = 0; section < section_ends_.size(); ++section) {
      std::vector<Run> heads;
      heads.reserve(all_.size());
      for (int32_t i = 0; i < sequences(); ++i) {
        heads.push_back(HeadsOf(i, section));
      }
      gradients_.emplace_back(places, std::move(heads), builder_);
    }
    sections_.assign(rows_.size(),
                     std::vector<SectionRows>(section_ends_.size()));
  }

  Plan Make() {
    for (int device = 0; device < devices(); ++device) Load(device);
    for (Rows& rows : rows_) FindDelta(rows);
    for (int step = 0; step < devices(); ++step) {
      // What comes next is on its way while this step is computed.
      const bool goes_on = step + 1 < devices();
      FetchDuring(step);
      for (size_t section = 0; section < section_ends_.size(); ++section) {
        RingGradients& of = gradients_[section];
        ForEachDevice([&](int device) { ComputeStep(device, step, section); });
        // At once, as a device's pulls may wait for each other: not behind what
        // the next section must have computed.
        ForEachDevice([&](int device) { of.SendHome(device, step); });
        if (!goes_on) continue;
        ForEachDevice([&](int device) { of.Fetch(device, step + 1); });
      }
      EndTurns(step);
    }
    for (RingGradients& gradients : gradients_) gradients.SendResults();
    return Finish(static_cast<int>(section_ends_.size()));
  }

 private:
  // Of one run of rows and one section of heads.
  struct SectionRows {
    std::optional<int> dq;  // the last buffer in its memory
    Steps dotted;           // the step that finds delta
  };

  template <class Do>
  void ForEachDevice(Do todo) {
    for (int device = 0; device < devices(); ++device) todo(device);
  }
  // A section's kv heads.
  Run HeadsOf(int32_t sequence, size_t section) const {
    const HeadRange range = SectionHeads(ShapeOf(sequence), section_ends_,
                                         static_cast<int>(section));
    return {range.head, range.heads};
  }
  Slice SliceOf(const Rows& rows, size_t section) const {
    const Run heads = HeadsOf(rows.sequence, section);
    return builder_.RowsOf(rows.sequence, heads.first, heads.count,
                           rows.place.run);
  }
  SectionRows& SectionOf(const Rows& rows, size_t section) {
    return sections_[&rows - rows_.data()][section];
  }

  // Of O, where that is given, for all turns; dQ then takes O's memory.
  void FindDelta(Rows& rows) {
    std::optional<int>& delta = rows.inputs[TensorId::kDelta];
    if (delta.has_value()) return;
    const int device = rows.place.device;
    delta = builder_.NewBuffer(device, TensorId::kDelta, DType::kF32,
                               RingPlan::SliceOf(rows));
    for (size_t section = 0; section < section_ends_.size(); ++section) {
      const Slice slice = SliceOf(rows, section);
      if (slice.heads == 0) continue;
      const int o = builder_.NewBuffer(
          device, TensorId::kO, *ShapeOf(rows.sequence).inputs[TensorId::kO],
          slice);
      const int uploaded = builder_.UploadAll(o);
      const int d_o = *rows.inputs[TensorId::kDO];
      SectionRows& of = SectionOf(rows, section);
      of.dq = o;
      of.dotted = {builder_.Add(device, Dot{d_o, o, *delta, slice},
                                {rows.uploads[TensorId::kDO], uploaded})};
    }
  }

  // Rows of one sequence take turns, as they add to the same columns.
  void ComputeStep(int device, int step, size_t section) {
    std::vector<Rows*> due = Due(device, step);
    std::erase_if(due, [&](const Rows* rows) {
      return HeadsOf(rows->sequence, section).empty();
    });
    while (!due.empty()) {
      std::vector<Rows*> now, later;
      for (Rows* rows : due) {
        const bool first =
            now.empty() || now.back()->sequence != rows->sequence;
        (first ? now : later).push_back(rows);
      }
      ComputeRows(device, step, section, now, later);
      due = std::move(later);
    }
    gradients_[section].End(device, step);
  }

  void ComputeRows(int device, int step, size_t section,
                   const std::vector<Rows*>& now,
                   const std::vector<Rows*>& later) {
    Compute compute;
    RingGradients::Adding adding;
    for (const Rows* rows : now) {
      Part part = PartOf(*rows, HeadsOf(rows->sequence, section));
      for (size_t c = 0; c < part.columns.size(); ++c) {
        const size_t r = rows->next().columns[c].r;
        const bool last =
            std::none_of(later.begin(), later.end(), [&](const Rows* other) {
              return other->sequence == rows->sequence && Sees(*other, r);
            });
        gradients_[section].Add(rows->sequence, device, step, r, last,
                                part.columns[c], adding);
      }
      compute.parts.push_back(std::move(part));
    }
    for (size_t i = 0; i < now.size(); ++i) {
      AddDq(*now[i], section, compute.parts[i]);
      Append(SectionOf(*now[i], section).dotted, adding.after);
    }
    const int added = AddCompute(device, now, std::move(compute),
                                 std::move(adding.after), section);
    adding.Tell(added);
  }

  // At their next turn.
  static bool Sees(const Rows& rows, size_t r) {
    const auto& columns = rows.next().columns;
    return std::any_of(columns.begin(), columns.end(),
                       [r](const auto& seen) { return seen.r == r; });
  }

  // In place, unless it is rounded.
  void AddDq(Rows& rows, size_t section, Part& part) {
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

  const Sections section_ends_;
  std::vector<RingGradients> gradients_;            // by section
  std::vector<std::vector<SectionRows>> sections_;  // by run of rows
};

}  // namespace

Plan MakeRingBackward(const PlanRequest& request, int devices) {
  return RingBackward(request, devices).Make();
}

}  // namespace attnd::plan
