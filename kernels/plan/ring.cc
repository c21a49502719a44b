// `ring`, `striped` and `zigzag`, forward: every device has some rows of each
// sequence, and a block of its columns. Rows stay. Blocks go round: each device
// passes the one that it has on to the next, and computes its rows over it
// meanwhile, so that after as many steps as there are devices all rows have met
// all columns. What a row has so far, O and LSE in f32, is merged with at the
// next step. A device has memory for two blocks and two such states, however
// many devices there are. The kinds differ in which tokens a device has.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/ring_places.h"

namespace attnd::plan {
namespace {

using Steps = std::vector<int>;

void Append(const Steps& steps, Steps& to) {
  to.insert(to.end(), steps.begin(), steps.end());
}

class Ring {
 public:
  Ring(const PlanRequest& request, int devices)
      : builder_(request, devices, request.kind) {}

  Plan Make() {
    for (int32_t i = 0; i < sequences(); ++i) Place(i);
    for (int device = 0; device < devices(); ++device) Load(device);
    for (int step = 0; step < devices(); ++step) {
      // What comes next is on its way while this step is computed.
      if (step + 1 < devices()) {
        for (int device = 0; device < devices(); ++device) {
          Fetch(device, step + 1);
        }
      }
      for (int device = 0; device < devices(); ++device) {
        ComputeStep(device, step);
      }
    }
    for (const Rows& rows : rows_) {
      for (const int output : rows.outputs) {
        builder_.DownloadAll(output, {rows.computed});
      }
    }
    return builder_.Finish(
        absl::StrCat("rows stay, columns go round in ", devices(), " blocks"));
  }

 private:
  // One run of rows, and what its device has of it.
  struct Rows {
    int32_t sequence = 0;
    RingPlaces::Rows place;
    std::optional<int> q = {};
    std::vector<std::optional<int>> bias = {};  // by turn
    Steps loaded = {};
    size_t turn = 0;  // the next one
    // The last buffers of O and LSE in either memory: of turns in turn.
    PerTensor<std::optional<int>> states[2] = {};
    std::vector<int> outputs = {};
    int computed = -1;  // the step of the last turn
  };
  // Memory of a device for one run of a block.
  struct Slot {
    std::optional<int> k, v;  // the last buffers in it
    Steps brought;            // the steps that bring it
    Steps used;               // those, and whatever reads it
  };
  // What there is of one sequence.
  struct Sequence {
    std::vector<std::vector<Runs>> wanted;  // RingPlaces::wanted
    // By device, its slots for even and odd steps, and runs of a block.
    std::vector<std::vector<Slot>> slots[2];
  };

  const PlanRequest& request() const { return builder_.request(); }
  int devices() const { return builder_.devices(); }
  int32_t sequences() const {
    return static_cast<int32_t>(request().sequences.size());
  }

  void Place(int32_t i) {
    RingPlaces places = PlaceRing(request(), request().sequences[i], devices());
    for (RingPlaces::Rows& rows : places.rows) {
      rows_.push_back({i, std::move(rows)});
    }
    Sequence& sequence = all_.emplace_back();
    sequence.wanted = std::move(places.wanted);
    for (auto& slots : sequence.slots) {
      slots.assign(devices(), std::vector<Slot>(places.runs));
    }
  }

  void Load(int device) {
    for (int32_t i = 0; i < sequences(); ++i) {
      const std::vector<Runs>& block = all_[i].wanted[device];
      for (size_t r = 0; r < block.size(); ++r) {
        const Run& run = block[r][0];
        if (run.empty()) continue;
        Slot& slot = NewBlock(device, i, 0, r, run);
        slot.brought = {builder_.UploadAll(*slot.k),
                        builder_.UploadAll(*slot.v)};
        slot.used = slot.brought;
      }
    }
    for (Rows& rows : rows_) {
      if (rows.place.device == device) LoadRows(rows);
    }
  }

  void LoadRows(Rows& rows) {
    const ProblemShape& shape = request().ProblemOf(rows.sequence);
    rows.q = builder_.NewBuffer(rows.place.device, TensorId::kQ,
                                *shape.inputs[TensorId::kQ], SliceOf(rows));
    rows.loaded.push_back(builder_.UploadAll(*rows.q));
    if (!shape.inputs[TensorId::kBias].has_value()) return;
    for (const RingPlaces::Turn& turn : rows.place.turns) {
      std::optional<int>& bias = rows.bias.emplace_back();
      Runs columns;
      for (const auto& [r, run] : turn.columns) columns.push_back(run);
      if (columns.empty()) continue;
      bias = builder_.NewBuffer(
          rows.place.device, TensorId::kBias, *shape.inputs[TensorId::kBias],
          builder_.BiasOf(rows.sequence, 0, shape.kv_heads, rows.place.run,
                          columns));
      rows.loaded.push_back(builder_.UploadAll(*bias));
    }
  }

  Slice SliceOf(const Rows& rows) const {
    return builder_.RowsOf(rows.sequence, 0,
                           request().ProblemOf(rows.sequence).kv_heads,
                           rows.place.run);
  }

  // Buffers for what a device has of a block at a step, in the memory of what
  // it had two steps before.
  Slot& NewBlock(int device, int32_t i, int step, size_t r, const Run& run) {
    const ProblemShape& shape = request().ProblemOf(i);
    const Slice slice = builder_.ColumnsOf(i, 0, shape.kv_heads, run);
    Slot& slot = all_[i].slots[step % 2][device][r];
    slot.k = builder_.NewBuffer(device, TensorId::kK,
                                *shape.inputs[TensorId::kK], slice, slot.k);
    slot.v = builder_.NewBuffer(device, TensorId::kV,
                                *shape.inputs[TensorId::kV], slice, slot.v);
    return slot;
  }

  // From the device before it what that has at the step before, once it is
  // there, and once nobody needs any more what it takes the place of.
  void Fetch(int device, int step) {
    Pull pull;
    pull.peer = (device + devices() - 1) % devices();
    Steps after;
    std::vector<Slot*> from_slots, to_slots;
    for (int32_t i = 0; i < sequences(); ++i) {
      const std::vector<Runs>& block =
          all_[i].wanted[BlockAt(device, step, devices())];
      for (size_t r = 0; r < block.size(); ++r) {
        const Run& run = block[r][step];
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

  void ComputeStep(int device, int step) {
    Compute compute;
    Steps after;
    std::vector<Rows*> computed;
    std::vector<Slot*> read;
    for (Rows& rows : rows_) {
      if (rows.place.device != device || rows.turn == rows.place.turns.size() ||
          rows.place.turns[rows.turn].step != step) {
        continue;
      }
      compute.parts.push_back(PartOf(rows));
      Append(rows.loaded, after);
      if (rows.turn > 0) after.push_back(rows.computed);
      for (const auto& [r, run] : rows.place.turns[rows.turn].columns) {
        Slot& slot = all_[rows.sequence].slots[step % 2][device][r];
        Append(slot.brought, after);
        read.push_back(&slot);
      }
      computed.push_back(&rows);
    }
    if (compute.parts.empty()) return;
    const int added = builder_.Add(device, std::move(compute), after);
    for (Slot* slot : read) slot->used.push_back(added);
    for (Rows* rows : computed) {
      rows->computed = added;
      ++rows->turn;
    }
  }

  // The rows' next turn.
  Part PartOf(Rows& rows) {
    const ProblemShape& shape = request().ProblemOf(rows.sequence);
    const RingPlaces::Turn& turn = rows.place.turns[rows.turn];
    Part part{rows.sequence, 0, shape.kv_heads, rows.place.run};
    for (const auto& [r, run] : turn.columns) {
      const Slot& slot =
          all_[rows.sequence].slots[turn.step % 2][rows.place.device][r];
      part.columns.push_back({run, *slot.k, *slot.v});
    }
    part.buffers[TensorId::kQ] = rows.q;
    if (!rows.bias.empty()) {
      part.buffers[TensorId::kBias] = rows.bias[rows.turn];
    }
    if (shape.outputs[TensorId::kO].has_value() ||
        shape.outputs[TensorId::kLse].has_value()) {
      AddResults(rows, shape.outputs, part);
    }
    return part;
  }

  // They are a state, in f32, unless the turn is the last, in the memory of the
  // state of two turns before; it merges with that of the one before.
  void AddResults(Rows& rows, const PerTensor<std::optional<DType>>& wanted,
                  Part& part) {
    const bool last = rows.turn + 1 == rows.place.turns.size();
    auto& states = rows.states[rows.turn % 2];
    for (const TensorId id : {TensorId::kO, TensorId::kLse}) {
      const bool merges_by_it = id == TensorId::kLse && !last;
      if (!wanted[id].has_value() && !merges_by_it) continue;
      states[id] = builder_.NewBuffer(rows.place.device, id,
                                      last ? *wanted[id] : DType::kF32,
                                      SliceOf(rows), states[id]);
      part.buffers[id] = states[id];
      if (last) rows.outputs.push_back(*states[id]);
    }
    if (rows.turn > 0) {
      const auto& before = rows.states[(rows.turn + 1) % 2];
      part.before = State{before[TensorId::kO], *before[TensorId::kLse]};
    }
  }

  PlanBuilder builder_;
  std::vector<Sequence> all_;
  std::vector<Rows> rows_;  // by sequence and device
};

}  // namespace

Plan MakeRing(const PlanRequest& request, int devices) {
  return Ring(request, devices).Make();
}

}  // namespace attnd::plan
