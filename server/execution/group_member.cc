#include "server/execution/group_member.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/execution/upload.h"
#include "server/work/group_key.h"
#include "server/work/request_bytes.h"
#include "server/work/tensor_source.h"

namespace attnd::server {
namespace {

// The memory of a region on a device, which keeps the region.
std::shared_ptr<DeviceBuffer> BufferOf(
    const std::shared_ptr<const Region>& region) {
  return {region, region->device().get()};
}

// A tensor's bytes in a region of host memory.
HostSpan HostBytes(const RegionBytes& place, int64_t bytes) {
  return place.region->host().subspan(place.offset, bytes);
}

// Whether it is to be copied to memory of the stream's.
bool IsUploaded(const TensorSource& source, const Backend& backend) {
  if (std::holds_alternative<HostPieces>(source)) return true;
  const auto* in_region = std::get_if<RegionBytes>(&source);
  return in_region != nullptr && in_region->region->device() == nullptr &&
         !backend.device().shares_host_memory;
}

void ReleaseInputs(Work& work) {
  work.inputs = {};
  if (work.release_inputs) std::exchange(work.release_inputs, nullptr)();
}

}  // namespace

absl::Status GroupMember::Load(const Backend& backend, Stream& stream,
                               OutputPool& pool, bool may_defer,
                               absl::FunctionRef<bool()> pause) {
  const auto cancelled = [this] {
    if (!work_->cancel.cancelled()) return false;
    Fail(absl::CancelledError("cancelled"));
    return true;
  };
  if (cancelled()) return absl::OkStatus();
  if (!reserved_) {
    absl::Status status = Reserve(backend, stream, pool);
    if (absl::IsResourceExhausted(status)) {
      if (may_defer) {
        state_ = State::kDeferred;
      } else {
        Fail(std::move(status));
      }
      return absl::OkStatus();
    }
    if (!status.ok()) return status;
    reserved_ = true;
  }
  const absl::StatusOr<bool> all = Fetch(backend, stream, pause);
  if (!all.ok()) return all.status();
  if (!*all || cancelled()) return absl::OkStatus();
  ReleaseInputs(*work_);
  Bind(backend);
  state_ = State::kLoaded;
  return absl::OkStatus();
}

void GroupMember::Fail(absl::Status failure) {
  ReleaseInputs(*work_);
  state_ = State::kFailed;
  failure_ = std::move(failure);
}

// Memory for all tensors. RESOURCE_EXHAUSTED: none now.
absl::Status GroupMember::Reserve(const Backend& backend, Stream& stream,
                                  OutputPool& pool) {
  absl::Status status = ReserveInputs(backend, stream);
  for (int i = 0; status.ok() && i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (work_->request->output(id).present) {
      status = ReserveOutput(id, stream, pool);
    }
  }
  return status;
}

// Only what is to be uploaded takes memory of the stream's.
absl::Status GroupMember::ReserveInputs(const Backend& backend,
                                        Stream& stream) {
  PerTensor<int64_t> offsets;
  int64_t bytes = 0;
  bool uploads = false;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    const Request::Tensor& input = work_->request->input(id);
    if (!input.present) continue;
    if (!IsUploaded(work_->inputs[id], backend)) continue;
    uploads = true;
    offsets[id] = bytes;
    bytes += AlignedTensorBytes(input.bytes);
  }
  if (!uploads) return absl::OkStatus();
  absl::StatusOr<std::byte*> memory =
      stream.Allocate(std::max(bytes, kTensorAlignment));
  if (!memory.ok()) return memory.status();
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (work_->request->input(id).present) memory_[id] = *memory + offsets[id];
  }
  return absl::OkStatus();
}

// Results go to memory of the pool, or to a region, where a device's own is
// written to by the kernels themselves.
absl::Status GroupMember::ReserveOutput(TensorId id, Stream& stream,
                                        OutputPool& pool) {
  const int64_t bytes = work_->request->output(id).bytes;
  const RegionBytes& place = work_->placed[id];
  HostSpan to;
  if (place.region == nullptr) {
    outputs_[id] = pool.Allocate(bytes, work_->charge);
    if (!outputs_[id]) {
      return absl::ResourceExhaustedError("no memory for the result");
    }
    to = outputs_[id].span();
  } else {
    regions_.push_back(place.region);
    if (place.region->device() != nullptr) {
      memory_[id] = place.region->device()->data() + place.offset;
      return stream.Use(BufferOf(place.region));
    }
    to = HostBytes(place, bytes);
  }
  absl::StatusOr<std::byte*> mapped = stream.MapOutput(to);
  if (!mapped.ok()) return mapped.status();
  memory_[id] = *mapped;
  return absl::OkStatus();
}

// Brings the inputs to where kernels read them, or finds them there.
absl::StatusOr<bool> GroupMember::Fetch(const Backend& backend, Stream& stream,
                                        absl::FunctionRef<bool()> pause) {
  for (; fetched_ < kTensorIds; ++fetched_, position_ = {}) {
    const TensorId id = static_cast<TensorId>(fetched_);
    if (!work_->request->input(id).present) continue;
    const TensorSource& source = work_->inputs[id];
    if (const auto* pieces = std::get_if<HostPieces>(&source)) {
      absl::StatusOr<bool> all = UploadPieces(*pieces, work_->cancel, pause,
                                              stream, memory_[id], position_);
      if (!all.ok() || !*all) return all;
      continue;
    }
    absl::Status status;
    if (const auto* bytes = std::get_if<DeviceBytes>(&source)) {
      memory_[id] = bytes->buffer->data() + bytes->offset;
      status = stream.Use(bytes->buffer);
    } else {
      status =
          FetchFromRegion(std::get<RegionBytes>(source), id, backend, stream);
    }
    if (!status.ok()) return status;
  }
  return true;
}

absl::Status GroupMember::FetchFromRegion(const RegionBytes& from, TensorId id,
                                          const Backend& backend,
                                          Stream& stream) {
  regions_.push_back(from.region);
  if (from.region->device() != nullptr) {
    memory_[id] = from.region->device()->data() + from.offset;
    return stream.Use(BufferOf(from.region));
  }
  const HostSpan bytes = HostBytes(from, work_->request->input(id).bytes);
  if (backend.device().shares_host_memory) {
    memory_[id] = bytes.data();
    return absl::OkStatus();
  }
  return stream.UploadPinned(bytes, memory_[id]);
}

void GroupMember::Bind(const Backend& backend) {
  bound_ = work_->request->Bind(memory_, &work_->cancel);
  const RequestSpec& spec = work_->request->spec();
  const GroupOptions options = OptionsOf(spec);
  if (!bound_->forward.empty()) {
    kernel_ = backend.Kernel(spec.op, bound_->forward.front().problem, options);
  } else if (!bound_->backward.empty()) {
    kernel_ =
        backend.Kernel(spec.op, bound_->backward.front().problem, options);
  } else {
    // No sequences at all, so no kernel; what was asked for did nothing.
    kernel_.algorithm = options.algorithm == Algorithm::kAuto
                            ? Algorithm::kFlashAttention2
                            : options.algorithm;
    kernel_.name = "none";
  }
}

absl::Status GroupMember::Download(Stream& stream) {
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    const Request::Tensor& output = work_->request->output(id);
    if (!output.present) continue;
    const RegionBytes& place = work_->placed[id];
    HostSpan to = outputs_[id].span();
    if (place.region != nullptr) {
      if (place.region->device() != nullptr) continue;
      to = HostBytes(place, output.bytes);
    }
    absl::Status status = stream.Download(memory_[id], to);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkResult> GroupMember::TakeResult(const WorkResult& group) {
  if (state_ == State::kFailed) return std::move(failure_);
  if (work_->cancel.cancelled()) return absl::CancelledError("cancelled");
  WorkResult result;
  result.outputs = std::move(outputs_);
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    const RegionBytes& place = work_->placed[id];
    if (place.region == nullptr) continue;
    result.placed.push_back({id, place.region->id(), place.offset});
  }
  result.device = group.device;
  result.kernel = std::move(kernel_);
  result.batch_requests = group.batch_requests;
  result.phases = group.phases;
  result.plan = group.plan;
  if (result.plan.has_value() && work_->plan.has_value()) {
    absl::StrAppend(&result.plan->why, "; ", work_->plan->why);
  }
  return result;
}

WorkPtr GroupMember::Take() {
  outputs_ = {};
  regions_.clear();
  return std::move(work_);
}

}  // namespace attnd::server
