#include "kernels/plan/ring_plan.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::plan {

RingPlan::RingPlan(const PlanRequest& request, int devices)
    : builder_(request, devices, request.kind) {
  for (int32_t i = 0; i < sequences(); ++i) {
    Sequence& sequence = all_.emplace_back();
    sequence.places = PlaceRing(request, request.sequences[i], devices);
    for (RingPlaces::Rows& rows : sequence.places.rows) {
      rows_.push_back({i, std::move(rows)});
    }
    for (auto& slots : sequence.slots) {
      slots.assign(devices, std::vector<Slot>(sequence.places.runs));
    }
  }
}

Slice RingPlan::SliceOf(const Rows& rows) const {
  return builder_.RowsOf(rows.sequence, 0, ShapeOf(rows.sequence).kv_heads,
                         rows.place.run);
}

void RingPlan::Load(int device) {
  for (int32_t i = 0; i < sequences(); ++i) {
    for (size_t r = 0; r < all_[i].places.runs; ++r) {
      const Run& run = all_[i].places.Wanted(device, 0, r);
      if (run.empty()) continue;
      Slot& slot = NewBlock(device, i, 0, r, run);
      slot.brought = {builder_.UploadAll(*slot.k), builder_.UploadAll(*slot.v)};
      slot.used = slot.brought;
    }
  }
  for (Rows& rows : rows_) {
    if (rows.place.device == device) LoadRows(rows);
  }
}

void RingPlan::LoadRows(Rows& rows) {
  const ProblemShape& shape = ShapeOf(rows.sequence);
  for (const TensorId id : RowInputs(request().op)) {
    if (!shape.inputs[id].has_value() || id == TensorId::kO) continue;
    if (id == TensorId::kBias) {
      LoadBias(rows);
      continue;
    }
    const int buffer = builder_.NewBuffer(rows.place.device, id,
                                          *shape.inputs[id], SliceOf(rows));
    rows.inputs[id] = buffer;
    rows.uploads[id] = builder_.UploadAll(buffer);
    rows.loaded.push_back(rows.uploads[id]);
  }
}

void RingPlan::LoadBias(Rows& rows) {
  const ProblemShape& shape = ShapeOf(rows.sequence);
  for (const RingPlaces::Turn& turn : rows.place.turns) {
    std::optional<int>& bias = rows.bias.emplace_back();
    Runs columns;
    for (const auto& [r, run] : turn.columns) columns.push_back(run);
    if (columns.empty()) continue;
    bias = builder_.NewBuffer(rows.place.device, TensorId::kBias,
                              *shape.inputs[TensorId::kBias],
                              builder_.BiasOf(rows.sequence, 0, shape.kv_heads,
                                              rows.place.run, columns));
    rows.loaded.push_back(builder_.UploadAll(*bias));
  }
}

RingPlan::Slot& RingPlan::NewBlock(int device, int32_t sequence, int step,
                                   size_t r, const Run& run) {
  const ProblemShape& shape = ShapeOf(sequence);
  const Slice slice = builder_.ColumnsOf(sequence, 0, shape.kv_heads, run);
  Slot& slot = all_[sequence].slots[step % 2][device][r];
  slot.k = builder_.NewBuffer(device, TensorId::kK, *shape.inputs[TensorId::kK],
                              slice, slot.k);
  slot.v = builder_.NewBuffer(device, TensorId::kV, *shape.inputs[TensorId::kV],
                              slice, slot.v);
  return slot;
}

void RingPlan::Fetch(int device, int step) {
  Pull pull;
  pull.peer = (device + devices() - 1) % devices();
  Steps after;
  std::vector<Slot*> from_slots, to_slots;
  for (int32_t i = 0; i < sequences(); ++i) {
    for (size_t r = 0; r < all_[i].places.runs; ++r) {
      const Run& run = all_[i].places.Wanted(device, step, r);
      if (run.empty()) continue;
      Slot& from = all_[i].slots[(step - 1) % 2][pull.peer][r];
      Slot& to = NewBlock(device, i, step, r, run);
      const Slice& slice = builder_.buffer(*to.k).slice;
      pull.items.push_back({*from.k, *to.k, slice});
      pull.items.push_back({*from.v, *to.v, slice});
      Append(from.brought, after);
      Append(to.used, after);
      from_slots.push_back(&from);
      to_slots.push_back(&to);
    }
  }
  if (pull.items.empty()) return;
  const int pulled = builder_.Add(device, std::move(pull), after);
  for (Slot* from : from_slots) from->used.push_back(pulled);
  for (Slot* to : to_slots) to->brought = to->used = {pulled};
}

std::vector<RingPlan::Rows*> RingPlan::Due(int device, int step) {
  std::vector<Rows*> due;
  for (Rows& rows : rows_) {
    if (rows.place.device == device && rows.turn < rows.place.turns.size() &&
        rows.next().step == step) {
      due.push_back(&rows);
    }
  }
  return due;
}

Part RingPlan::PartOf(const Rows& rows, const Run& heads) const {
  const RingPlaces::Turn& turn = rows.next();
  Part part{rows.sequence, heads.first, heads.count, rows.place.run};
  for (const auto& [r, run] : turn.columns) {
    const Slot& slot =
        all_[rows.sequence].slots[turn.step % 2][rows.place.device][r];
    part.columns.push_back({run, *slot.k, *slot.v});
  }
  part.buffers = rows.inputs;
  if (!rows.bias.empty()) part.buffers[TensorId::kBias] = rows.bias[rows.turn];
  return part;
}

int RingPlan::AddCompute(int device, absl::Span<Rows* const> due,
                         Compute compute, Steps after, size_t section) {
  std::vector<Slot*> read;
  for (Rows* rows : due) {
    Append(rows->loaded, after);
    if (rows->turn > 0) after.push_back(rows->computed[section]);
    const RingPlaces::Turn& turn = rows->next();
    for (const auto& [r, run] : turn.columns) {
      Slot& slot = all_[rows->sequence].slots[turn.step % 2][device][r];
      Append(slot.brought, after);
      read.push_back(&slot);
    }
  }
  const int added = builder_.Add(device, std::move(compute), std::move(after));
  for (Slot* slot : read) slot->used.push_back(added);
  for (Rows* rows : due) {
    if (rows->computed.size() <= section) rows->computed.resize(section + 1);
    rows->computed[section] = added;
  }
  return added;
}

void RingPlan::EndTurns(int step) {
  for (Rows& rows : rows_) {
    if (rows.turn < rows.place.turns.size() && rows.next().step == step) {
      ++rows.turn;
    }
  }
}

Plan RingPlan::Finish(int sections) {
  for (const Rows& rows : rows_) {
    for (const auto& [output, section] : rows.outputs) {
      builder_.DownloadAll(output, {rows.computed[section]});
    }
  }
  return builder_.Finish(
      absl::StrCat("rows stay, columns go round in ", devices(), " blocks",
                   sections == 1 ? "" : ", gradients in sections of heads"),
      sections);
}

}  // namespace attnd::plan
