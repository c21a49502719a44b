#include "kernels/plan/ring_gradients.h"

#include <utility>

namespace attnd::plan {
namespace {

void Append(const std::vector<int>& steps, std::vector<int>& to) {
  to.insert(to.end(), steps.begin(), steps.end());
}

}  // namespace

template <class Do>
void RingGradients::ForEachWanted(int32_t sequence, Do todo) const {
  const auto& wanted = builder_.request().ProblemOf(sequence).outputs;
  for (const TensorId id : {TensorId::kDK, TensorId::kDV}) {
    if (wanted[id].has_value()) todo(id);
  }
}

template <class Do>
void RingGradients::ForEachRun(Do todo) {
  for (int32_t i = 0; i < static_cast<int32_t>(places_.size()); ++i) {
    if (!IsWanted(i)) continue;
    for (size_t r = 0; r < places_[i]->runs; ++r) todo(i, r);
  }
}

bool RingGradients::IsWanted(int32_t sequence) const {
  bool any = false;
  ForEachWanted(sequence, [&](TensorId) { any = true; });
  return any && !heads_[sequence].empty();
}

RingGradients::RingGradients(std::vector<const RingPlaces*> places,
                             std::vector<Run> heads, PlanBuilder& builder)
    : places_(std::move(places)),
      heads_(std::move(heads)),
      builder_(builder),
      all_(places_.size()) {
  for (size_t i = 0; i < all_.size(); ++i) {
    for (auto& passed : all_[i].passed) {
      passed.assign(devices(), std::vector<Memory>(places_[i]->runs));
    }
    all_[i].home = all_[i].passed[0];
    all_[i].ended.assign(devices(), std::vector<Ended>(places_[i]->runs));
  }
  ForEachRun([&](int32_t i, size_t r) {
    for (int device = 0; device < devices(); ++device) PlaceHome(i, device, r);
  });
}

// Of columns that nobody sees gradients are 0.
void RingGradients::PlaceHome(int32_t i, int device, size_t r) {
  Memory& home = all_[i].home[device][r];
  const Run& block = places_[i]->blocks[device][r];
  if (block.empty()) return;
  const Run& seen = places_[i]->Wanted(device, 0, r);
  ForEachWanted(i, [&](TensorId id) {
    const int buffer =
        builder_.NewBuffer(device, id, DTypeOf(i, id), ColumnsOf(i, block));
    home.buffers[id] = buffer;
    for (const Run& run : CutAtEnds(block, {seen})) {
      if (seen.Has(run)) continue;
      home.written.push_back(
          builder_.Add(device, Sum{{}, buffer, ColumnsOf(i, run)}, {}));
    }
  });
}

void RingGradients::Add(int32_t i, int device, int step, size_t r, bool last,
                        Columns& columns, Adding& adding) {
  if (!IsWanted(i)) return;
  Memory& passed = Passed(i, device, step, r);
  const bool ends = last && places_[i]->WantedAfter(device, step, r).empty();
  Append(passed.used, adding.after);
  ForEachWanted(i, [&](TensorId id) {
    const bool is_dk = id == TensorId::kDK;
    std::optional<int>& buffer = passed.buffers[id];
    std::optional<int>& to = is_dk ? columns.dk : columns.dv;
    if (passed.is_there) {
      (is_dk ? columns.dk_before : columns.dv_before) = buffer;
    }
    if (ends) {
      to = EndIn(i, device, step, r, id, adding.after);
    } else {
      to = buffer = builder_.NewBuffer(device, id, DType::kF32,
                                       ColumnsOf(i, columns.run), buffer);
    }
  });
  if (ends) {
    all_[i].ended[device][r].runs = {columns.run};
    adding.told.push_back(&EndsOf(i, device, step, r));
  } else {
    passed.is_there = true;
    passed.written.clear();
    adding.told.push_back(&passed.written);
  }
  adding.told.push_back(&passed.used);
}

void RingGradients::End(int device, int step) {
  ForEachRun([&](int32_t i, size_t r) { EndSome(i, device, step, r); });
}

// Columns that go no further, though others of their run do, are rounded by
// themselves. What is not to be rounded goes home as it is.
void RingGradients::EndSome(int32_t i, int device, int step, size_t r) {
  Memory& passed = Passed(i, device, step, r);
  const Run further = places_[i]->WantedAfter(device, step, r);
  if (!passed.is_there || further.empty()) return;
  Ended& ended = all_[i].ended[device][r];
  for (const Run& run :
       CutAtEnds(places_[i]->Wanted(device, step, r), {further})) {
    if (!further.Has(run)) ended.runs.push_back(run);
  }
  if (ended.runs.empty()) return;
  Steps& ends = EndsOf(i, device, step, r);
  Append(passed.written, ends);
  ForEachWanted(i, [&](TensorId id) {
    if (step > 0 && DTypeOf(i, id) == DType::kF32) {
      ended.buffers[id] = passed.buffers[id];
      ended.used.push_back(&passed.used);
      return;
    }
    Steps after = passed.written;
    const int to = EndIn(i, device, step, r, id, after);
    for (const Run& run : ended.runs) {
      const int summed = builder_.Add(
          device, Sum{{*passed.buffers[id]}, to, ColumnsOf(i, run)}, after);
      ends.push_back(summed);
      passed.used.push_back(summed);
    }
  });
}

RingGradients::Steps& RingGradients::EndsOf(int32_t i, int device, int step,
                                            size_t r) {
  return step == 0 ? all_[i].home[device][r].written
                   : all_[i].ended[device][r].written;
}

// At home that is the result, and elsewhere the memory that is free at this
// step, or the same one where nothing is rounded.
int RingGradients::EndIn(int32_t i, int device, int step, size_t r, TensorId id,
                         Steps& after) {
  if (step == 0) return *all_[i].home[device][r].buffers[id];
  const DType dtype = DTypeOf(i, id);
  Memory& in = Passed(i, device, dtype == DType::kF32 ? step : step + 1, r);
  std::optional<int>& buffer = in.buffers[id];
  buffer = builder_.NewBuffer(device, id, dtype,
                              ColumnsOf(i, places_[i]->Wanted(device, step, r)),
                              buffer);
  Append(in.used, after);
  Ended& ended = all_[i].ended[device][r];
  ended.buffers[id] = buffer;
  ended.used.push_back(&in.used);
  return *buffer;
}

void RingGradients::SendHome(int device, int step) {
  const int home = BlockAt(device, step, devices());
  Pull pull;
  pull.peer = device;
  Steps after;
  std::vector<Steps*> told;
  ForEachRun([&](int32_t i, size_t r) {
    const Ended ended = std::exchange(all_[i].ended[device][r], {});
    if (step == 0 || ended.runs.empty()) return;
    Memory& result = all_[i].home[home][r];
    ForEachWanted(i, [&](TensorId id) {
      for (const Run& run : ended.runs) {
        pull.items.push_back(
            {*ended.buffers[id], *result.buffers[id], ColumnsOf(i, run)});
      }
    });
    Append(ended.written, after);
    told.push_back(&result.written);
    told.insert(told.end(), ended.used.begin(), ended.used.end());
  });
  if (pull.items.empty()) return;
  const int pulled = builder_.Add(home, std::move(pull), after);
  for (Steps* steps : told) steps->push_back(pulled);
}

void RingGradients::Fetch(int device, int step) {
  Pull pull;
  pull.peer = (device + devices() - 1) % devices();
  Steps after;
  std::vector<Memory*> from_all, to_all;
  ForEachRun([&](int32_t i, size_t r) {
    Memory& from = Passed(i, pull.peer, step - 1, r);
    Memory& to = Passed(i, device, step, r);
    const Run& run = places_[i]->Wanted(device, step, r);
    to.is_there = from.is_there && !run.empty();
    if (!to.is_there) return;
    const Slice slice = ColumnsOf(i, run);
    ForEachWanted(i, [&](TensorId id) {
      std::optional<int>& buffer = to.buffers[id];
      buffer = builder_.NewBuffer(device, id, DType::kF32, slice, buffer);
      pull.items.push_back({*from.buffers[id], *buffer, slice});
    });
    Append(from.written, after);
    Append(to.used, after);
    from_all.push_back(&from);
    to_all.push_back(&to);
  });
  if (pull.items.empty()) return;
  const int pulled = builder_.Add(device, std::move(pull), after);
  for (Memory* from : from_all) from->used.push_back(pulled);
  for (Memory* to : to_all) to->written = to->used = {pulled};
}

void RingGradients::SendResults() {
  ForEachRun([&](int32_t i, size_t r) {
    for (const std::vector<Memory>& home : all_[i].home) {
      ForEachWanted(i, [&](TensorId id) {
        if (!home[r].buffers[id].has_value()) return;
        builder_.DownloadAll(*home[r].buffers[id], home[r].written);
      });
    }
  });
}

}  // namespace attnd::plan
