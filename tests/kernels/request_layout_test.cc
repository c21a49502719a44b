// Requests end to end: the same attention in every layout is the same bits, and
// no request, however strange, does more than be refused.

#include <cstring>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/dtype.h"
#include "kernels/reference/reference.h"
#include "kernels/request.h"

namespace attnd {
namespace {

// Memory for a request's tensors: inputs random, outputs NaN.
class RequestMemory {
 public:
  RequestMemory(const Request& request, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int i = 0; i < kTensorIds; ++i) {
      const TensorId id = static_cast<TensorId>(i);
      const Request::Tensor& input = request.input(id);
      const Request::Tensor& output = request.output(id);
      bytes_[id].assign(input.bytes + output.bytes, std::byte{0xff});
      pointers_[id] = bytes_[id].data();
      const int64_t elements = input.bytes / SizeOf(input.spec.dtype);
      for (int64_t e = 0; e < elements; ++e)
        StoreElement(pointers_[id], input.spec.dtype, e, normal(random));
    }
  }

  const TensorPointers& pointers() const { return pointers_; }
  std::vector<std::byte>& bytes(TensorId id) { return bytes_[id]; }

 private:
  PerTensor<std::vector<std::byte>> bytes_;
  TensorPointers pointers_;
};

void RunRequest(const Request& request, const RequestMemory& memory) {
  const auto bound = request.Bind(memory.pointers(), nullptr);
  for (const ForwardArgs& args : bound->forward)
    ASSERT_TRUE(reference::Forward(args, Algorithm::kFlashAttention2).ok());
  for (const BackwardArgs& args : bound->backward)
    ASSERT_TRUE(reference::Backward(args, Algorithm::kFlashAttention2).ok());
}

struct Sizes4 {
  int64_t batch, q_len, kv_len, q_heads, kv_heads, head_dim, value_dim;
};
constexpr Sizes4 kSizes = {3, 6, 9, 4, 2, 8, 5};

// [batch, len, heads, dim] as a shape of `layout`.
TensorSpec Shaped(Layout layout, int64_t len, int64_t heads, int64_t dim) {
  switch (layout) {
    case Layout::kBshd:
      return {DType::kF16, {kSizes.batch, len, heads, dim}};
    case Layout::kBhsd:
      return {DType::kF16, {kSizes.batch, heads, len, dim}};
    case Layout::kPacked:
      return {DType::kF16, {kSizes.batch * len, heads, dim}};
  }
  return {};
}

TensorSpec Rows(Layout layout) {
  if (layout == Layout::kPacked)
    return {DType::kF32, {kSizes.q_heads, kSizes.batch * kSizes.q_len}};
  return {DType::kF32, {kSizes.batch, kSizes.q_heads, kSizes.q_len}};
}

RequestSpec Spec(Layout layout, Op op) {
  const Sizes4& s = kSizes;
  RequestSpec spec;
  spec.op = op;
  spec.layout = layout;
  spec.inputs[TensorId::kQ] = Shaped(layout, s.q_len, s.q_heads, s.head_dim);
  spec.inputs[TensorId::kK] = Shaped(layout, s.kv_len, s.kv_heads, s.head_dim);
  spec.inputs[TensorId::kV] = Shaped(layout, s.kv_len, s.kv_heads, s.value_dim);
  spec.inputs[TensorId::kBias] = {DType::kF32, {s.batch, 1, s.q_len, s.kv_len}};
  if (op == Op::kBackward) {
    spec.inputs[TensorId::kDO] =
        Shaped(layout, s.q_len, s.q_heads, s.value_dim);
    spec.inputs[TensorId::kLse] = spec.inputs[TensorId::kDelta] = Rows(layout);
  }
  spec.mask = {.causal = true, .left = 5};
  if (layout == Layout::kPacked) {
    spec.q_lens.assign(s.batch, s.q_len);
    spec.kv_lens.assign(s.batch, s.kv_len);
  }
  return spec;
}

// Element (b, t, h, d) of a tensor of tokens, or (b, t, h) of rows.
int64_t Index(Layout layout, TensorId id, int64_t len, int64_t heads,
              int64_t dim, int64_t b, int64_t t, int64_t h, int64_t d) {
  if (id == TensorId::kLse || id == TensorId::kDelta)
    return layout == Layout::kPacked ? (h * kSizes.batch + b) * len + t
                                     : (b * heads + h) * len + t;
  return layout == Layout::kBhsd ? ((b * heads + h) * len + t) * dim + d
                                 : ((b * len + t) * heads + h) * dim + d;
}

// Whether both hold the same elements, or makes them so.
bool SameElements(TensorId id, Layout a_layout, std::byte* a, Layout b_layout,
                  std::byte* b, bool copy) {
  const Sizes4& s = kSizes;
  const bool kv = id == TensorId::kK || id == TensorId::kV ||
                  id == TensorId::kDK || id == TensorId::kDV;
  const bool rows = id == TensorId::kLse || id == TensorId::kDelta;
  const bool value = id == TensorId::kV || id == TensorId::kDV ||
                     id == TensorId::kO || id == TensorId::kDO;
  const int64_t len = kv ? s.kv_len : s.q_len,
                heads = kv ? s.kv_heads : s.q_heads;
  const int64_t dim = rows ? 1 : value ? s.value_dim : s.head_dim;
  const int64_t size = rows ? 4 : 2;
  for (int64_t batch = 0; batch < s.batch; ++batch)
    for (int64_t t = 0; t < len; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < dim; ++d) {
          std::byte* x =
              a + size * Index(a_layout, id, len, heads, dim, batch, t, h, d);
          std::byte* y =
              b + size * Index(b_layout, id, len, heads, dim, batch, t, h, d);
          if (copy)
            std::memcpy(y, x, size);
          else if (std::memcmp(x, y, size) != 0)
            return false;
        }
  return true;
}

TEST(RequestLayoutTest, EveryLayoutGivesTheSameBits) {
  for (Op op : {Op::kForward, Op::kBackward}) {
    std::mt19937 random(1);
    const auto base = *Request::Create(Spec(Layout::kBshd, op));
    RequestMemory base_memory(*base, random);
    RunRequest(*base, base_memory);
    for (Layout layout : {Layout::kBhsd, Layout::kPacked}) {
      const auto request = Request::Create(Spec(layout, op));
      ASSERT_TRUE(request.ok()) << request.status();
      RequestMemory memory(**request, random);
      memory.bytes(TensorId::kBias) = base_memory.bytes(TensorId::kBias);
      TensorPointers pointers = memory.pointers();
      std::memcpy(pointers[TensorId::kBias],
                  base_memory.bytes(TensorId::kBias).data(),
                  base_memory.bytes(TensorId::kBias).size());
      for (int i = 0; i < kTensorIds; ++i) {
        const TensorId id = static_cast<TensorId>(i);
        if (id != TensorId::kBias && base->input(id).present)
          SameElements(id, Layout::kBshd, base_memory.bytes(id).data(), layout,
                       pointers[id],
                       /*copy=*/true);
      }
      RunRequest(**request, memory);
      for (int i = 0; i < kTensorIds; ++i) {
        const TensorId id = static_cast<TensorId>(i);
        if (!base->output(id).present) continue;
        EXPECT_TRUE(SameElements(id, Layout::kBshd,
                                 base_memory.bytes(id).data(), layout,
                                 pointers[id], /*copy=*/false))
            << TensorName(id);
      }
    }
  }
}

// Mostly small numbers, and those that break arithmetic.
int64_t Odd(std::mt19937& random) {
  constexpr int64_t kOdd[] = {0,
                              1,
                              -1,
                              2,
                              255,
                              256,
                              257,
                              int64_t{1} << 31,
                              (int64_t{1} << 31) + 1,
                              int64_t{1} << 60,
                              -(int64_t{1} << 60),
                              (int64_t{1} << 60) + 1,
                              int64_t{1} << 62,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};
  return kOdd[random() % std::size(kOdd)];
}

// A valid small request in which a few numbers are then replaced.
RequestSpec RandomSpec(std::mt19937& random) {
  const Layout layout = static_cast<Layout>(random() % 3);
  RequestSpec spec = Spec(layout, random() % 2 ? Op::kForward : Op::kBackward);
  if (random() % 2) spec.inputs[TensorId::kBias].reset();
  if (random() % 4 == 0) spec.q_lens.assign(kSizes.batch, 2);
  if (random() % 2)
    spec.q_start.assign(random() % 2 ? 1 : kSizes.batch, random() % 9);
  if (random() % 2)
    spec.kv_start.assign(random() % 2 ? 1 : kSizes.batch, random() % 9);
  for (int n = random() % 5; n > 0; --n) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: {
        auto& tensor =
            spec.inputs[static_cast<TensorId>(random() % kTensorIds)];
        if (tensor.has_value())
          tensor->shape[random() % tensor->shape.size()] = Odd(random);
        break;
      }
      case 3:
        for (auto id :
             {TensorId::kQ, TensorId::kK, TensorId::kV, TensorId::kDO})
          if (spec.inputs[id].has_value())
            spec.inputs[id]->shape[random() % 2] = Odd(random);
        break;
      case 4: {
        std::vector<int64_t>* lists[] = {&spec.q_lens, &spec.kv_lens,
                                         &spec.q_start, &spec.kv_start};
        auto& list = *lists[random() % 4];
        if (!list.empty()) list[random() % list.size()] = Odd(random);
        break;
      }
      case 5:
        (random() % 2 ? spec.q_stride : spec.kv_stride) = Odd(random);
        break;
      case 6:
        (random() % 2 ? spec.mask.left : spec.mask.right) = Odd(random);
        break;
      default:
        spec.inputs[static_cast<TensorId>(random() % kTensorIds)].reset();
    }
  }
  return spec;
}

TEST(RequestFuzzTest, IsRefusedByFieldOrRuns) {
  std::mt19937 random(2);
  int accepted = 0, run = 0;
  for (int n = 0; n < 20'000; ++n) {
    const auto request = Request::Create(RandomSpec(random));
    if (!request.ok()) {
      ASSERT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++accepted;
    ASSERT_GE((*request)->input_bytes(), 0);
    ASSERT_GE((*request)->output_bytes(), 0);
    ASSERT_GE((*request)->flops(), 0);
    (*request)->Bind({}, nullptr);
    if (accepted % 10 != 0) continue;
    if ((*request)->input_bytes() + (*request)->output_bytes() > 1 << 20)
      continue;
    ++run;
    RequestMemory memory(**request, random);
    RunRequest(**request, memory);
  }
  EXPECT_GT(accepted, 2000);
  EXPECT_GT(run, 200);
}

}  // namespace
}  // namespace attnd
