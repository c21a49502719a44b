#include "tests/server/fakes/test_work.h"

#include <algorithm>
#include <random>
#include <utility>

namespace attnd::server {
namespace {

std::vector<std::byte> RandomBytes(int64_t size) {
  thread_local std::mt19937 random(std::random_device{}());
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<ConstHostSpan> Pieces(const std::vector<std::byte>& bytes,
                                  size_t piece_bytes) {
  std::vector<ConstHostSpan> pieces;
  ConstHostSpan rest = bytes;
  while (!rest.empty()) {
    pieces.push_back(rest.subspan(0, piece_bytes));
    rest.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace

TestWork::TestWork(const WorkShape& shape)
    : data_(std::make_shared<Data>()), work_(std::make_shared<Work>()) {
  RequestSpec spec;
  spec.op = shape.op;
  spec.algorithm = shape.algorithm;
  const TensorSpec q = {shape.dtype, {1, shape.q_len, shape.heads, shape.dim}};
  const TensorSpec kv = {shape.dtype,
                         {1, shape.kv_len, shape.heads, shape.dim}};
  const TensorSpec row = {DType::kF32, {1, shape.heads, shape.q_len}};
  const auto size = [](const TensorSpec& tensor) {
    int64_t bytes = SizeOf(tensor.dtype);
    for (int64_t n : tensor.shape) bytes *= n;
    return bytes;
  };
  data_->q = RandomBytes(size(q));
  data_->kv = RandomBytes(size(kv));
  data_->row = RandomBytes(size(row));
  const auto add = [&](TensorId id, const TensorSpec& tensor,
                       const std::vector<std::byte>& bytes) {
    spec.inputs[id] = tensor;
    work_->inputs[id] = Pieces(bytes, shape.piece_bytes);
  };
  add(TensorId::kQ, q, data_->q);
  add(TensorId::kK, kv, data_->kv);
  add(TensorId::kV, kv, data_->kv);
  if (shape.op == Op::kBackward) {
    add(TensorId::kDO, q, data_->q);
    add(TensorId::kLse, row, data_->row);
    add(TensorId::kDelta, row, data_->row);
  }
  work_->request = *Request::Create(std::move(spec));
  work_->priority = shape.priority;
  work_->client = shape.client;
  work_->deadline = shape.deadline;
  work_->release_inputs = [data = data_] {
    std::lock_guard lock(data->mutex);
    ++data->release_calls;
    // Whoever reads them later reads poison.
    std::fill(data->kv.begin(), data->kv.end(), std::byte{0xee});
  };
  work_->done = [data = data_](absl::StatusOr<WorkResult> result) {
    std::lock_guard lock(data->mutex);
    ++data->done_calls;
    data->done_on = std::this_thread::get_id();
    data->result = std::move(result);
    data->changed.notify_all();
  };
}

absl::StatusOr<WorkResult> TestWork::Await() {
  std::unique_lock lock(data_->mutex);
  data_->changed.wait(lock, [this] { return data_->result.has_value(); });
  return std::exchange(data_->result, std::nullopt).value();
}

int TestWork::done_calls() const {
  std::lock_guard lock(data_->mutex);
  return data_->done_calls;
}

std::thread::id TestWork::done_on() const {
  std::lock_guard lock(data_->mutex);
  return data_->done_on;
}

int TestWork::release_calls() const {
  std::lock_guard lock(data_->mutex);
  return data_->release_calls;
}

}  // namespace attnd::server
