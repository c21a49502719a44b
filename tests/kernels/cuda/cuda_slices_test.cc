// Groups that run in slices have the bits that they have as a whole, and leave
// room for others between two slices.

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/device_buffer.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/random_problem.h"
#include "tests/kernels/sequence_alone.h"

namespace attnd {
namespace {

using cuda::LaunchCounts;
using cuda::SliceOptions;
using testing::DeviceTest;
using testing::ForwardOnly;
using testing::InvarianceShape;
using testing::InvarianceShapes;
using testing::OwnedTensor;
using testing::ProblemOptions;
using testing::RandomProblem;
using testing::ShapeName;

// As small as slices can be: a wave of tiles.
const SliceOptions kSmallest = {.time = absl::Nanoseconds(1), .least_waves = 1};

// The GPU as if it had so few multiprocessors that a wave is small, and no L2
// cache that would keep a head's rows: heads come chunk by chunk then.
cuda::Gpu Few(cuda::Gpu gpu) {
  gpu.multiprocessors = 4;
  gpu.cache_bytes = 0;
  return gpu;
}

using Bits = std::vector<std::vector<uint8_t>>;

Bits BitsOf(const RandomProblem::ForwardOutputs& out) {
  return {out.o.bytes(), out.lse.bytes()};
}
Bits BitsOf(const RandomProblem::BackwardOutputs& out) {
  Bits bits = {out.dq.bytes()};
  for (const OwnedTensor& t : out.dk) bits.push_back(t.bytes());
  for (const OwnedTensor& t : out.dv) bits.push_back(t.bytes());
  return bits;
}
template <class Outputs>
std::vector<Bits> BitsOf(const std::vector<Outputs>& outputs) {
  std::vector<Bits> bits;
  for (const Outputs& out : outputs) bits.push_back(BitsOf(out));
  return bits;
}

// Enqueues what is left, and counts slices in place of kernels.
absl::StatusOr<LaunchCounts> EnqueueRest(
    absl::StatusOr<std::unique_ptr<cuda::Rest>> rest) {
  if (!rest.ok()) return rest.status();
  LaunchCounts slices{.kernels = 1};
  while (*rest != nullptr) {
    if (absl::Status s = (*rest)->EnqueueSlice(); !s.ok()) return s;
    ++slices.kernels;
    if ((*rest)->share() >= 1) *rest = nullptr;
  }
  return slices;
}

class CudaSlicesTest : public DeviceTest,
                       public ::testing::WithParamInterface<InvarianceShape> {
 protected:
  // Several of them, which share launches; some are decoded in parts.
  std::vector<std::unique_ptr<RandomProblem>> Problems(uint32_t seed,
                                                       bool backward) const {
    std::vector<std::unique_ptr<RandomProblem>> problems;
    for (uint32_t n = 0; n < 6; ++n) {
      ProblemOptions options = backward ? ProblemOptions{} : ForwardOnly();
      options.dtypes = {GetParam().dtype};
      options.head_dim = GetParam().head_dim;
      options.value_dim = GetParam().value_dim;
      options.max_q_len = options.max_kv_len = 600;
      options.max_segments = options.max_group = 2;
      if (n % 2 == 0) {
        options.gap_step = 8;
        if (backward) {
          options.bias = options.softcap = options.odd_scales = false;
        }
      }
      if (n == 5 && !backward) {
        options.max_q_len = 4;
        options.max_kv_len = 9000;
      }
      problems.push_back(
          std::make_unique<RandomProblem>(100 * seed + n, options));
    }
    return problems;
  }

  void CheckForward(Algorithm algorithm);
  void CheckBackward(Algorithm algorithm);
};

void CudaSlicesTest::CheckForward(Algorithm algorithm) {
  const cuda::Gpu few = Few(device().gpu());
  int most = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const auto problems = Problems(seed, false);
    std::vector<RandomProblem::ForwardOutputs> whole, sliced;
    for (const auto& p : problems) {
      whole.push_back(p->MakeForwardOutputs());
      sliced.push_back(p->MakeForwardOutputs());
    }
    std::vector<ForwardArgs> whole_group, sliced_group;
    for (size_t n = 0; n < problems.size(); ++n) {
      whole_group.push_back(problems[n]->Forward(whole[n]));
      sliced_group.push_back(problems[n]->Forward(sliced[n]));
    }
    const auto counts = device().Forward(whole_group, algorithm);
    ASSERT_TRUE(counts.ok()) << counts.status();
    const auto slices = device().ForwardEach(
        {sliced_group},
        [&](absl::Span<const ForwardArgs> group, cuda::Workspace& workspace) {
          return EnqueueRest(
              cuda::BeginForward(group, algorithm, few, workspace, kSmallest));
        });
    ASSERT_TRUE(slices.ok()) << slices.status();
    most = std::max(most, slices->front().kernels);
    EXPECT_EQ(BitsOf(whole) == BitsOf(sliced), true) << "seed " << seed;
  }
  EXPECT_GE(most, 3);
}

void CudaSlicesTest::CheckBackward(Algorithm algorithm) {
  const cuda::Gpu few = Few(device().gpu());
  const GroupOptions options = {.algorithm = algorithm, .deterministic = true};
  int most = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const auto problems = Problems(seed, true);
    std::vector<RandomProblem::BackwardOutputs> whole, sliced;
    for (const auto& p : problems) {
      whole.push_back(p->MakeBackwardOutputs());
      sliced.push_back(p->MakeBackwardOutputs());
    }
    std::vector<BackwardArgs> whole_group, sliced_group;
    for (size_t n = 0; n < problems.size(); ++n) {
      whole_group.push_back(problems[n]->Backward(whole[n]));
      sliced_group.push_back(problems[n]->Backward(sliced[n]));
    }
    const auto counts = device().Backward(whole_group, options);
    ASSERT_TRUE(counts.ok()) << counts.status();
    const auto slices = device().BackwardEach(
        {sliced_group},
        [&](absl::Span<const BackwardArgs> group, cuda::Workspace& workspace) {
          return EnqueueRest(
              cuda::BeginBackward(group, options, few, workspace, kSmallest));
        });
    ASSERT_TRUE(slices.ok()) << slices.status();
    most = std::max(most, slices->front().kernels);
    EXPECT_EQ(BitsOf(whole) == BitsOf(sliced), true) << "seed " << seed;
  }
  EXPECT_GE(most, 3);
}

TEST_P(CudaSlicesTest, ForwardHasTheBitsOfTheWhole) {
  CheckForward(Algorithm::kAuto);
}
TEST_P(CudaSlicesTest, NaiveForwardHasTheBitsOfTheWhole) {
  CheckForward(Algorithm::kNaive);
}
TEST_P(CudaSlicesTest, FlashAttention1HasTheBitsOfTheWhole) {
  CheckForward(Algorithm::kFlashAttention1);
}
TEST_P(CudaSlicesTest, DeterministicBackwardHasTheBitsOfTheWhole) {
  CheckBackward(Algorithm::kAuto);
}
TEST_P(CudaSlicesTest, DeterministicNaiveBackwardHasTheBitsOfTheWhole) {
  CheckBackward(Algorithm::kNaive);
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaSlicesTest,
                         ::testing::ValuesIn(InvarianceShapes()), ShapeName);

// A causal self-attention [1, len, heads, 128] in bf16 whose Q, K and V are
// one random tensor in a buffer.
struct SelfAttention {
  SelfAttention(std::shared_ptr<cuda::Landing> landing, int64_t len,
                int64_t heads, uint32_t seed)
      : bytes(len * heads * 128 * 2) {
    buffer = cuda::CudaBuffer::Create(std::move(landing), bytes).value();
    std::mt19937 random(seed);
    std::vector<uint16_t> values(bytes / 2);
    for (uint16_t& v : values) {
      v = static_cast<uint16_t>((random() & 0x807f) | 0x3f00);  // 0.5 to 1
    }
    const ConstHostSpan span(reinterpret_cast<const std::byte*>(values.data()),
                             bytes);
    EXPECT_TRUE(buffer->Write(0, {&span, 1}).ok());
    segment.k = segment.v = {buffer->data(), DType::kBF16, len * heads * 128,
                             heads * 128, 128};
    segment.len = len;
    Problem& p = args.problem;
    p.batch = 1;
    p.q_len = len;
    p.q_heads = p.kv_heads = heads;
    p.head_dim = p.value_dim = 128;
    p.q = segment.k;
    p.kv = {&segment, 1};
    p.scale = 0.1f;
    p.mask.causal = true;
    host.resize(bytes);
  }
  SelfAttention(const SelfAttention&) = delete;
  SelfAttention& operator=(const SelfAttention&) = delete;

  // Everything up to the first slice.
  void Begin(cuda::CudaStream& stream) {
    ASSERT_TRUE(stream.Use(buffer).ok());
    const auto out = stream.MapOutput(HostSpan(host));
    ASSERT_TRUE(out.ok()) << out.status();
    o = *out;
    const ConstTensorView& q = args.problem.q;
    args.o = {o, q.dtype, q.batch_stride, q.token_stride, q.head_stride};
    const absl::Status status = stream.Forward({&args, 1}, {});
    ASSERT_TRUE(status.ok()) << status;
  }
  void Download(cuda::CudaStream& stream) {
    ASSERT_TRUE(stream.Download(o, HostSpan(host)).ok());
  }
  void Run(cuda::CudaStream& stream) {
    Begin(stream);
    ASSERT_EQ(stream.Proceed([] { return false; }).value(), 1);
    Download(stream);
    ASSERT_TRUE(stream.Wait().ok());
    stream.Reset();
  }

  const int64_t bytes;
  std::shared_ptr<cuda::CudaBuffer> buffer;
  KvSegment segment;
  ForwardArgs args;
  std::byte* o = nullptr;
  std::vector<std::byte> host;  // O
};

class CudaStreamSlicesTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    landing_ = cuda::Landing::Create(0).value();
  }
  std::unique_ptr<cuda::CudaStream> NewStream(const SliceOptions& slices) {
    return cuda::CudaStream::Create(0, device().gpu(), slices).value();
  }

  std::shared_ptr<cuda::Landing> landing_;
};

TEST_F(CudaStreamSlicesTest, OthersRunWhileAGroupIsPaused) {
  SelfAttention large(landing_, 4096, 32, 1), small(landing_, 200, 2, 2);
  const auto whole = NewStream({.time = absl::InfiniteDuration()});
  large.Run(*whole);
  small.Run(*whole);
  const std::vector<std::byte> large_o = large.host, small_o = small.host;
  for (int under_way : {1, 2}) {
    const auto sliced = NewStream({.time = absl::Microseconds(20),
                                   .under_way = under_way,
                                   .least_waves = 1});
    std::fill(large.host.begin(), large.host.end(), std::byte{0xEE});
    large.Begin(*sliced);
    double share = 0;
    int pauses = 0;
    while (share < 1) {
      int asked = 0;
      const auto next = sliced->Proceed([&] { return asked++ == 1; });
      ASSERT_TRUE(next.ok()) << next.status();
      EXPECT_GT(*next, share);
      share = *next;
      if (share == 1) break;
      ++pauses;
      std::fill(small.host.begin(), small.host.end(), std::byte{0xEE});
      small.Run(*whole);
      EXPECT_TRUE(small.host == small_o);
    }
    EXPECT_GE(pauses, 3);
    large.Download(*sliced);
    ASSERT_TRUE(sliced->Wait().ok());
    sliced->Reset();
    EXPECT_TRUE(large.host == large_o) << under_way << " under way";
  }
}

TEST_F(CudaStreamSlicesTest, AResultIsThereOnceItsMarkIsPassed) {
  SelfAttention first(landing_, 1000, 8, 3), second(landing_, 4096, 32, 4);
  const auto stream = NewStream({});
  first.Run(*stream);
  second.Run(*stream);
  const std::vector<std::byte> first_o = first.host, second_o = second.host;
  for (int batch = 0; batch < 3; ++batch) {
    std::fill(first.host.begin(), first.host.end(), std::byte{0xEE});
    std::fill(second.host.begin(), second.host.end(), std::byte{0xEE});
    first.Begin(*stream);
    first.Download(*stream);
    EXPECT_EQ(stream->Mark().value(), 0);
    second.Begin(*stream);
    second.Download(*stream);
    EXPECT_EQ(stream->Mark().value(), 1);
    ASSERT_TRUE(stream->WaitFor(0).ok());
    EXPECT_TRUE(first.host == first_o);
    ASSERT_TRUE(stream->WaitFor(1).ok());
    EXPECT_TRUE(second.host == second_o);
    ASSERT_TRUE(stream->Wait().ok());
    stream->Reset();
  }
}

}  // namespace
}  // namespace attnd
