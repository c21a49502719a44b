#include "kernels/plan/ring_plan.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::plan {

RingPlan::RingPlan(const PlanRequest& request, int devices)
    : builder_(request, devices, request.kind), fetched_(devices) {
  for (int32_t i = 0; i < sequences(); ++i) {
    Sequence& sequence = all_.emplace_back();
    sequence.places = PlaceRing(request, request.sequences[i], devices);
    for (RingPlaces::Rows& rows : sequence.places.rows) {
      rows_.push_back({i, std::move(rows)});
    }
    sequence.slots.assign(by_ring() ? 2 : devices, {});
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
      for (const int buffer : {*slot.k, *slot.v}) {
        builder_.BringColumns(buffer, builder_.buffer(buffer).slice,
                              slot.brought);
      }
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
    for (const RingPlaces::Seen& seen : turn.columns) {
      columns.push_back(seen.run);
    }
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
  Slot& slot = SlotAt(sequence, device, step, r);
  slot.k = builder_.NewBuffer(device, TensorId::kK, *shape.inputs[TensorId::kK],
                              slice, slot.k);
  slot.v = builder_.NewBuffer(device, TensorId::kV, *shape.inputs[TensorId::kV],
                              slice, slot.v);
  return slot;
}

void RingPlan::FetchDuring(int phase) {
  const auto fetch = [this](int step) {
    for (int device = 0; device < devices(); ++device) Fetch(device, step);
  };
  if (by_ring()) {
    if (phase + 1 < devices()) fetch(phase + 1);
  } else if (phase == 0) {
    for (int step = 1; step < devices(); ++step) fetch(step);
  }
}

// Of a device's pulls from all each waits for the one before: at once they
// would share the way to it, and the nearest block would come as late as all.
void RingPlan::Fetch(int device, int step) {
  // When the other device has it.
  const int there = by_ring() ? step - 1 : 0;
  Pull pull;
  pull.peer = BlockAt(device, step - there, devices());
  Steps after = fetched_[device];
  std::vector<Slot*> from_slots, to_slots;
  for (int32_t i = 0; i < sequences(); ++i) {
    for (size_t r = 0; r < all_[i].places.runs; ++r) {
      const Run& run = all_[i].places.Wanted(device, step, r);
      if (run.empty()) continue;
      Slot& from = SlotAt(i, pull.peer, there, r);
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
  if (!by_ring()) fetched_[device] = {pulled};
}

std::vector<RingPlan::Rows*> RingPlan::Due(int device, int phase) {
  std::vector<Rows*> due;
  for (Rows& rows : rows_) {
    if (rows.place.device == device && rows.turn < rows.place.turns.size() &&
        rows.next().phase == phase) {
      due.push_back(&rows);
    }
  }
  return due;
}

Part RingPlan::PartOf(const Rows& rows, const Run& heads) {
  Part part{rows.sequence, heads.first, heads.count, rows.place.run};
  for (const auto& [step, r, run] : rows.next().columns) {
    const Slot& slot = SlotAt(rows.sequence, rows.place.device, step, r);
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
    for (const RingPlaces::Seen& seen : rows->next().columns) {
      Slot& slot = SlotAt(rows->sequence, device, seen.step, seen.r);
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

void RingPlan::EndTurns(int phase) {
  for (Rows& rows : rows_) {
    if (rows.turn < rows.place.turns.size() && rows.next().phase == phase) {
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
      absl::StrCat(
          "rows stay, ",
          by_ring() ? absl::StrCat("columns go round in ", devices(), " blocks")
                    : absl::StrCat(devices(),
                                   " blocks of columns pulled from all in ",
                                   phases(), " phases"),
          sections == 1 ? "" : ", gradients in sections of heads"),
      sections);
}

}  // namespace attnd::plan
