#include "server/execution/group_member.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "server/execution/upload.h"
#include "server/work/request_bytes.h"
#include "server/work/tensor_source.h"

namespace attnd::server {
namespace {

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
    absl::Status status = Reserve(stream, pool);
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
  const absl::StatusOr<bool> all = Fetch(stream, pause);
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
absl::Status GroupMember::Reserve(Stream& stream, OutputPool& pool) {
  absl::Status status = ReserveInputs(stream);
  for (int i = 0; status.ok() && i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    if (work_->request->output(id).present) {
      status = ReserveOutput(id, stream, pool);
    }
  }
  return status;
}

// Only what is to be uploaded takes memory of the stream's.
absl::Status GroupMember::ReserveInputs(Stream& stream) {
  PerTensor<int64_t> offsets;
  int64_t bytes = 0;
  bool uploads = false;
  for (int i = 0; i < kTensorIds; ++i) {
    const TensorId id = static_cast<TensorId>(i);
    const Request::Tensor& input = work_->request->input(id);
    if (!input.present) continue;
    if (!std::holds_alternative<HostPieces>(work_->inputs[id])) continue;
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

// Results go to memory of the pool. Another place for one would be chosen here,
// and known to Download.
absl::Status GroupMember::ReserveOutput(TensorId id, Stream& stream,
                                        OutputPool& pool) {
  OutputBuffer& buffer = outputs_[id];
  buffer = pool.Allocate(work_->request->output(id).bytes, work_->charge);
  if (!buffer) return absl::ResourceExhaustedError("no memory for the result");
  absl::StatusOr<std::byte*> mapped = stream.MapOutput(buffer.span());
  if (!mapped.ok()) return mapped.status();
  memory_[id] = *mapped;
  return absl::OkStatus();
}

// Brings the inputs to where kernels read them, or finds them there.
absl::StatusOr<bool> GroupMember::Fetch(Stream& stream,
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
    const DeviceBytes& bytes = std::get<DeviceBytes>(source);
    memory_[id] = bytes.buffer->data() + bytes.offset;
    absl::Status status = stream.Use(bytes.buffer);
    if (!status.ok()) return status;
  }
  return true;
}

void GroupMember::Bind(const Backend& backend) {
  bound_ = work_->request->Bind(memory_, &work_->cancel);
  const RequestSpec& spec = work_->request->spec();
  const GroupOptions options = {spec.algorithm, spec.deterministic};
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
    if (!outputs_[id]) continue;
    absl::Status status = stream.Download(memory_[id], outputs_[id].span());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkResult> GroupMember::TakeResult(const WorkResult& group) {
  if (state_ == State::kFailed) return std::move(failure_);
  if (work_->cancel.cancelled()) return absl::CancelledError("cancelled");
  WorkResult result;
  result.outputs = std::move(outputs_);
  result.device = group.device;
  result.kernel = std::move(kernel_);
  result.batch_requests = group.batch_requests;
  result.phases = group.phases;
  return result;
}

WorkPtr GroupMember::Take() {
  outputs_ = {};
  return std::move(work_);
}

}  // namespace attnd::server
