#include "client/attnctl/placed_request.h"

#include <limits>
#include <utility>
#include <variant>

namespace attnd::client {
namespace {

template <typename Call>
std::vector<int64_t> Pieces(Call& call) {
  std::vector<int64_t> pieces;
  for (const ConstTensor* tensor : InputsOf(call)) {
    pieces.push_back(BytesOf(tensor->dtype, tensor->shape));
  }
  for (const Tensor* tensor : OutputsOf(call)) {
    pieces.push_back(BytesOf(tensor->dtype, tensor->shape));
  }
  return pieces;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlacedRequest>> PlacedRequest::Place(
    const TransportFlags& flags, absl::Duration timeout, Request& request,
    Client& client) {
  auto memory = RegionMemory::Lease(
      flags, std::visit([](auto& call) { return Pieces(call); }, request.call),
      std::numeric_limits<int64_t>::max(), timeout);
  if (!memory.ok()) return memory.status();
  auto placed = std::make_unique<PlacedRequest>();
  placed->memory_ = *std::move(memory);
  const absl::Status moved = std::visit(
      [&placed](auto& call) { return placed->Move(call); }, request.call);
  if (!moved.ok()) return moved;
  request.leased_bytes = placed->memory_->bytes();
  request.on_device = placed->memory_->on_device();
  for (const auto& region : placed->memory_->regions()) {
    client.AddRegion(region);
  }
  return placed;
}

template <typename Call>
absl::Status PlacedRequest::Move(Call& call) {
  for (ConstTensor* tensor : InputsOf(call)) {
    const int64_t bytes = BytesOf(tensor->dtype, tensor->shape);
    if (bytes == 0) continue;
    const absl::StatusOr<char*> to = memory_->Take(bytes);
    if (!to.ok()) return to.status();
    absl::Status copied = memory_->CopyIn(tensor->data, bytes, *to);
    if (!copied.ok()) return copied;
    tensor->data = *to;
  }
  for (Tensor* tensor : OutputsOf(call)) {
    const int64_t bytes = BytesOf(tensor->dtype, tensor->shape);
    // One that is too large to be here is refused by the call.
    if (bytes == 0 || tensor->data == nullptr) continue;
    const absl::StatusOr<char*> to = memory_->Take(bytes);
    if (!to.ok()) return to.status();
    // What the server leaves out shows there too.
    absl::Status copied = memory_->CopyIn(tensor->data, bytes, *to);
    if (!copied.ok()) return copied;
    results_.push_back({*to, tensor->data, bytes});
    tensor->data = *to;
  }
  return absl::OkStatus();
}

absl::Status PlacedRequest::CopyOut() const {
  for (const Result& result : results_) {
    absl::Status copied =
        memory_->CopyOut(result.placed, result.bytes, result.to);
    if (!copied.ok()) return copied;
  }
  return absl::OkStatus();
}

}  // namespace attnd::client
