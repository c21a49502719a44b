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

// Tensors of one shape: Q and what is like it, K and V, LSE and delta.
struct Specs {
  explicit Specs(const WorkShape& shape)
      : q{shape.dtype, {1, shape.q_len, shape.heads, shape.dim}},
        kv{shape.dtype, {1, shape.kv_len, shape.heads, shape.dim}},
        row{DType::kF32, {1, shape.heads, shape.q_len}} {}
  TensorSpec q, kv, row;
};

int64_t Size(const TensorSpec& tensor) {
  int64_t bytes = SizeOf(tensor.dtype);
  for (int64_t n : tensor.shape) bytes *= n;
  return bytes;
}

}  // namespace

TestWork::TestWork(const WorkShape& shape)
    : TestWork(shape, std::make_shared<Data>()) {}

TestWork::TestWork(const WorkShape& shape, const TestWork& other)
    : TestWork(shape, [&other] {
        auto data = std::make_shared<Data>();
        data->q = other.data_->q;
        data->kv = other.data_->kv;
        data->row = other.data_->row;
        return data;
      }()) {}

TestWork::TestWork(const WorkShape& shape, std::shared_ptr<Data> data)
    : data_(std::move(data)), work_(std::make_shared<Work>()) {
  RequestSpec spec;
  spec.op = shape.op;
  spec.algorithm = shape.algorithm;
  spec.plan = shape.plan;
  const auto [q, kv, row] = Specs(shape);
  if (data_->row.empty()) {
    data_->q = RandomBytes(Size(q));
    data_->kv = RandomBytes(Size(kv));
    data_->row = RandomBytes(Size(row));
  }
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
