#include "client/attnload/placed_tensors.h"

#include <algorithm>
#include <utility>

#include "client/region_allocator.h"

namespace attnd::attnload {
namespace {

using client::BytesOf;
using client::kRegionAlignment;

// Calls visit(call), a call of `payload` with its results in `answer`.
template <typename Visit>
auto WithCall(const Payload& payload, Answer& answer, Visit visit) {
  if (payload.shape().backward) {
    client::BackwardCall call = payload.Backward(answer);
    return visit(call);
  }
  client::ForwardCall call = payload.Forward(answer);
  return visit(call);
}

// Calls visit(tensor, its offset in a slot, its bytes) for each result; returns
// what the slot must hold.
template <typename Call, typename Visit>
int64_t EachResult(Call& call, Visit visit) {
  int64_t offset = 0;
  for (client::Tensor* tensor : client::OutputsOf(call)) {
    const int64_t bytes = BytesOf(tensor->dtype, tensor->shape);
    visit(*tensor, offset, bytes);
    offset +=
        (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
  }
  return offset;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlacedTensors>> PlacedTensors::Place(
    const client::TransportFlags& flags, Workload& workload, int64_t slots,
    int64_t most_bytes, absl::Duration timeout) {
  std::vector<int64_t> pieces;
  int64_t slot_bytes = 0;
  Answer none;  // only sizes are asked for
  for (size_t i = 0; i < workload.shapes().size(); ++i) {
    WithCall(workload.payload(i), none, [&](auto& call) {
      for (const client::ConstTensor* tensor : client::InputsOf(call)) {
        pieces.push_back(BytesOf(tensor->dtype, tensor->shape));
      }
      slot_bytes = std::max(slot_bytes,
                            EachResult(call, [](auto&, int64_t, int64_t) {}));
    });
  }
  pieces.insert(pieces.end(), slots, slot_bytes);
  auto memory = client::RegionMemory::Lease(flags, pieces, most_bytes, timeout);
  if (!memory.ok()) return memory.status();

  auto placed = std::make_unique<PlacedTensors>();
  placed->memory_ = *std::move(memory);
  absl::Status status;
  const auto take = [&](int64_t bytes) {
    absl::StatusOr<char*> taken = placed->memory_->Take(bytes);
    status.Update(taken.status());
    return taken.value_or(nullptr);
  };
  for (size_t i = 0; i < workload.shapes().size(); ++i) {
    std::vector<char*>& inputs = placed->inputs_.emplace_back();
    WithCall(workload.payload(i), none, [&](auto& call) {
      for (const client::ConstTensor* tensor : client::InputsOf(call)) {
        const int64_t bytes = BytesOf(tensor->dtype, tensor->shape);
        inputs.push_back(take(bytes));
        if (!status.ok()) return;
        status.Update(
            placed->memory_->CopyIn(tensor->data, bytes, inputs.back()));
      }
    });
  }
  {
    MutexLock lock(placed->mutex_);
    for (int64_t i = 0; i < slots; ++i) {
      placed->slots_.push_back(take(slot_bytes));
    }
  }
  if (!status.ok()) return status;
  return placed;
}

char* PlacedTensors::TakeSlot() {
  MutexLock lock(mutex_);
  char* slot = slots_.back();
  slots_.pop_back();
  return slot;
}

void PlacedTensors::GiveBack(char* slot) {
  MutexLock lock(mutex_);
  slots_.push_back(slot);
}

template <typename Call>
void PlacedTensors::Point(size_t shape, char* slot, Call& call) const {
  const std::vector<char*>& inputs = inputs_[shape];
  size_t next = 0;
  for (client::ConstTensor* tensor : client::InputsOf(call)) {
    tensor->data = inputs[next++];
  }
  EachResult(call, [slot](client::Tensor& tensor, int64_t offset, int64_t) {
    tensor.data = slot + offset;
  });
}

template void PlacedTensors::Point(size_t, char*, client::ForwardCall&) const;
template void PlacedTensors::Point(size_t, char*, client::BackwardCall&) const;

absl::Status PlacedTensors::CopyIn(const Payload& payload, Answer& answer,
                                   char* slot) const {
  absl::Status status;
  WithCall(payload, answer, [&](auto& call) {
    EachResult(call, [&](auto& tensor, int64_t offset, int64_t bytes) {
      status.Update(memory_->CopyIn(tensor.data, bytes, slot + offset));
    });
  });
  return status;
}

absl::Status PlacedTensors::CopyOut(const Payload& payload, const char* slot,
                                    Answer& answer) const {
  absl::Status status;
  WithCall(payload, answer, [&](auto& call) {
    EachResult(call, [&](auto& tensor, int64_t offset, int64_t bytes) {
      status.Update(memory_->CopyOut(slot + offset, bytes, tensor.data));
    });
  });
  return status;
}

}  // namespace attnd::attnload
