#include "client/attnload/payload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "client/attnload/row_mask.h"
#include "client/element.h"

namespace attnd::attnload {
namespace {

// About normal with a deviation near 1, in multiples of 1/4: exact in every
// type, so that one seed is the same problem in each.
std::vector<std::byte> RandomTensor(client::DType dtype, int64_t elements,
                                    std::mt19937_64& random) {
  std::vector<std::byte> data(elements * client::SizeOf(dtype));
  for (int64_t i = 0; i < elements; ++i) {
    // Four numbers of 0 to 7 have a mean of 14 and a deviation of 4.6.
    uint64_t bits = random();
    int sum = 0;
    for (int n = 0; n < 4; ++n, bits >>= 3) sum += int(bits & 7);
    client::StoreElement(dtype, float(sum - 14) / 4, data.data(), i);
  }
  return data;
}

client::ConstTensor Input(client::DType dtype, std::vector<int64_t> shape,
                          const void* data) {
  return {dtype, std::move(shape), data};
}

}  // namespace

Payload::Payload(const Shape& shape, uint64_t seed) : shape_(shape) {
  std::mt19937_64 random(seed);
  q_ = RandomTensor(shape.dtype, shape.q_elements(), random);
  k_ = RandomTensor(shape.dtype, shape.k_elements(), random);
  v_ = RandomTensor(shape.dtype, shape.v_elements(), random);
  if (!shape.backward) return;
  d_o_ = RandomTensor(shape.dtype, shape.o_elements(), random);
  o_ = RandomTensor(shape.dtype, shape.o_elements(), random);
  // About that of n normal scores, so that probabilities have a usual size, but
  // rarely below one of them, without computing a forward for it.
  lse_.resize(shape.rows());
  for (int64_t row = 0; row < shape.rows(); ++row) {
    const Columns columns = ColumnsOfRow(shape, row % shape.q_len);
    lse_[row] = columns.size() == 0 ? -INFINITY
                                    : std::log(float(columns.size())) + 2.0f;
  }
}

client::ForwardCall Payload::Forward(Answer& answer) const {
  const Shape& s = shape_;
  client::ForwardCall call;
  call.q = Input(s.dtype, {s.batch, s.q_len, s.q_heads, s.head_dim}, q());
  call.k = Input(s.dtype, {s.batch, s.kv_len, s.kv_heads, s.head_dim}, k());
  call.v = Input(s.dtype, {s.batch, s.kv_len, s.kv_heads, s.value_dim}, v());
  call.attention.mask = s.mask;
  call.algorithm = s.algorithm;
  call.plan = s.plan;
  call.o = {
      s.dtype, {s.batch, s.q_len, s.q_heads, s.value_dim}, answer.a.data()};
  call.lse = {
      client::DType::kF32, {s.batch, s.q_heads, s.q_len}, answer.rows.data()};
  return call;
}

client::BackwardCall Payload::Backward(Answer& answer) const {
  const Shape& s = shape_;
  const std::vector<int64_t> q_shape{s.batch, s.q_len, s.q_heads, s.head_dim};
  const std::vector<int64_t> k_shape{s.batch, s.kv_len, s.kv_heads, s.head_dim};
  const std::vector<int64_t> v_shape{s.batch, s.kv_len, s.kv_heads,
                                     s.value_dim};
  const std::vector<int64_t> o_shape{s.batch, s.q_len, s.q_heads, s.value_dim};
  client::BackwardCall call;
  call.q = Input(s.dtype, q_shape, q());
  call.k = Input(s.dtype, k_shape, k());
  call.v = Input(s.dtype, v_shape, v());
  call.attention.mask = s.mask;
  call.d_o = Input(s.dtype, o_shape, d_o());
  call.o = Input(s.dtype, o_shape, o());
  call.lse = Input(client::DType::kF32, {s.batch, s.q_heads, s.q_len}, lse());
  call.algorithm = s.algorithm;
  call.plan = s.plan;
  call.deterministic = s.deterministic;
  call.dq = {s.dtype, q_shape, answer.a.data()};
  call.dk = {s.dtype, k_shape, answer.b.data()};
  call.dv = {s.dtype, v_shape, answer.c.data()};
  return call;
}

std::unique_ptr<Answer> Payload::TakeAnswer() {
  {
    MutexLock lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Answer> answer = std::move(free_.back());
      free_.pop_back();
      return answer;
    }
  }
  const int64_t element = client::SizeOf(shape_.dtype);
  auto answer = std::make_unique<Answer>();
  if (shape_.backward) {
    answer->a.resize(shape_.q_elements() * element);
    answer->b.resize(shape_.k_elements() * element);
    answer->c.resize(shape_.v_elements() * element);
  } else {
    answer->a.resize(shape_.o_elements() * element);
    answer->rows.resize(shape_.rows());
  }
  return answer;
}

void Payload::GiveBack(std::unique_ptr<Answer> answer) {
  MutexLock lock(mutex_);
  free_.push_back(std::move(answer));
}

void Payload::Poison(Answer& answer) {
  for (std::vector<std::byte>* bytes : {&answer.a, &answer.b, &answer.c}) {
    std::fill(bytes->begin(), bytes->end(), std::byte{0xff});
  }
  std::fill(answer.rows.begin(), answer.rows.end(), NAN);
}

}  // namespace attnd::attnload
