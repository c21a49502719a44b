// What members of a team compute, beside what a stream does: on GPUs.

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_member.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/dtype.h"

namespace attnd::cuda {
namespace {

using Queue = MemberStream::Queue;
using Bytes = std::vector<std::byte>;

constexpr int64_t kMiB = int64_t{1} << 20;

// What tensors and workspaces take of the device's pool now.
int64_t PoolBytes(int device) {
  cudaMemPool_t pool = nullptr;
  uint64_t used = 0;
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, device), cudaSuccess);
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used),
            cudaSuccess);
  return static_cast<int64_t>(used);
}

struct Shape {
  DType dtype = DType::kBF16;
  int64_t q_len = 0, kv_len = 0, q_heads = 1, kv_heads = 1, dim = 64;
  bool causal = false;

  int64_t q_elements() const { return q_len * q_heads * dim; }
  int64_t kv_elements() const { return kv_len * kv_heads * dim; }
  int64_t rows() const { return q_len * q_heads; }
};
constexpr Shape kShapes[] = {
    {DType::kBF16, 300, 500, 4, 2, 128, true},
    {DType::kF16, 1000, 700, 2, 2, 64, false},
    {DType::kBF16, 65, 2000, 3, 1, 80, true},
    {DType::kF32, 200, 130, 2, 1, 64, true},
    {DType::kBF16, 7, 900, 8, 2, 128, false},
    {DType::kBF16, 4096, 4096, 4, 4, 128, true},
};

class CudaMemberComputeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto usable = UsableDevices();
    if (!usable.ok()) GTEST_SKIP() << "no GPU here: " << usable.status();
    if (usable->empty()) GTEST_SKIP() << "no GPU that is recent enough here";
    devices_ = *usable;
    const Gpu gpu = DescribeGpu(devices_[0]).value();
    // Slices as short as they may be.
    const SliceOptions slices{.time = absl::Microseconds(100),
                              .least_waves = 1};
    member_ = CudaMember::Create(devices_[0], gpu, slices).value();
    stream_ = CudaStream::Create(devices_[0], gpu).value();
  }

  std::byte* Upload(const Bytes& host) {
    const auto bytes = static_cast<int64_t>(host.size());
    std::byte* memory = member_->Allocate(bytes).value();
    EXPECT_TRUE(
        member_->Upload({.from = host.data(), .to = memory, .row_bytes = bytes})
            .ok());
    EXPECT_TRUE(member_->Wait().ok());
    return memory;
  }
  Bytes Download(const std::byte* memory, int64_t bytes) {
    Bytes host(bytes);
    EXPECT_TRUE(
        member_
            ->Download({.from = memory, .to = host.data(), .row_bytes = bytes})
            .ok());
    EXPECT_TRUE(member_->Wait().ok());
    return host;
  }
  std::byte* Random(DType dtype, int64_t count) {
    Bytes bytes(count * SizeOf(dtype));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) {
      StoreElement(bytes.data(), dtype, i, normal(random_));
    }
    return Upload(bytes);
  }
  std::byte* Poisoned(int64_t bytes) {
    return Upload(Bytes(bytes, std::byte{0x5A}));
  }

  // [1, tokens, heads, dim]
  static TensorView View(std::byte* data, const Shape& s, int64_t heads) {
    return {data, s.dtype, 0, heads * s.dim, s.dim};
  }
  static RowView RowsOf(std::byte* data, const Shape& s) {
    return {reinterpret_cast<float*>(data), 0, s.q_len};
  }
  template <class View>
  static auto Const(const View& view) {
    return ConstTensorView{view.data, view.dtype, 0, view.token_stride,
                           view.head_stride};
  }

  // Random Q, K and V of this shape.
  void Draw(const Shape& s) {
    segment_ = {};
    segment_.k = Const(View(Random(s.dtype, s.kv_elements()), s, s.kv_heads));
    segment_.v = Const(View(Random(s.dtype, s.kv_elements()), s, s.kv_heads));
    segment_.len = s.kv_len;
    problem_ = {};
    problem_.batch = 1;
    problem_.q_len = s.q_len;
    problem_.q_heads = s.q_heads;
    problem_.kv_heads = s.kv_heads;
    problem_.head_dim = problem_.value_dim = s.dim;
    problem_.q = Const(View(Random(s.dtype, s.q_elements()), s, s.q_heads));
    problem_.kv = {&segment_, 1};
    problem_.mask.causal = s.causal;
    problem_.scale = 0.125f;
  }
  ForwardArgs Outputs(const Shape& s) {
    ForwardArgs args;
    args.problem = problem_;
    args.o = View(Poisoned(s.q_elements() * SizeOf(s.dtype)), s, s.q_heads);
    args.lse = RowsOf(Poisoned(s.rows() * 4), s);
    return args;
  }
  Bytes Bits(const TensorView& view, int64_t elements) {
    return Download(static_cast<const std::byte*>(view.data),
                    elements * SizeOf(view.dtype));
  }
  Bytes Bits(const RowView& view, int64_t rows) {
    return Download(reinterpret_cast<const std::byte*>(view.data), rows * 4);
  }

  std::mt19937_64 random_{13};
  std::vector<int> devices_;
  std::unique_ptr<CudaMember> member_;
  std::unique_ptr<CudaStream> stream_;
  KvSegment segment_;
  Problem problem_;
};

bool Never() { return false; }

TEST_F(CudaMemberComputeTest, ForwardHasTheBitsOfAStreams) {
  for (const Shape& s : kShapes) {
    Draw(s);
    const ForwardArgs here = Outputs(s), there = Outputs(s);
    ASSERT_TRUE(stream_->Forward({&there, 1}, {}).ok());
    ASSERT_TRUE(stream_->Proceed(Never).ok());
    ASSERT_TRUE(stream_->Wait().ok());
    ASSERT_TRUE(member_->Forward({&here, 1}, {}).ok());
    const PhaseTimes times = member_->Wait().value();
    EXPECT_GT(times.compute, absl::ZeroDuration());
    EXPECT_TRUE(Bits(here.o, s.q_elements()) == Bits(there.o, s.q_elements()))
        << s.q_len;
    EXPECT_TRUE(Bits(here.lse, s.rows()) == Bits(there.lse, s.rows()))
        << s.q_len;
    member_->Reset();
  }
}

// And the delta of Dot has the bits of that which backward finds.
TEST_F(CudaMemberComputeTest, BackwardHasTheBitsOfAStreams) {
  const GroupOptions options{.deterministic = true};
  for (const Shape& s : kShapes) {
    Draw(s);
    const ForwardArgs forward = Outputs(s);
    ASSERT_TRUE(member_->Forward({&forward, 1}, {}).ok());
    ASSERT_TRUE(member_->Wait().ok());
    BackwardArgs args;
    args.d_o = Const(View(Random(s.dtype, s.q_elements()), s, s.q_heads));
    args.lse = {forward.lse.data, 0, s.q_len};
    const RowView delta = RowsOf(Poisoned(s.rows() * 4), s);
    std::vector<Bytes> results[3];
    for (int run = 0; run < 3; ++run) {
      const auto gradient = [&](int64_t elements, int64_t heads) {
        return View(Poisoned(elements * SizeOf(s.dtype)), s, heads);
      };
      segment_.dk = gradient(s.kv_elements(), s.kv_heads);
      segment_.dv = gradient(s.kv_elements(), s.kv_heads);
      args.dq = gradient(s.q_elements(), s.q_heads);
      args.problem = problem_;
      args.o = Const(forward.o);
      if (run == 0) {
        ASSERT_TRUE(stream_->Backward({&args, 1}, options).ok());
        ASSERT_TRUE(stream_->Proceed(Never).ok());
        ASSERT_TRUE(stream_->Wait().ok());
      } else {
        if (run == 2) {
          ASSERT_TRUE(member_
                          ->Dot({.a = args.d_o,
                                 .b = args.o,
                                 .to = delta,
                                 .rows = s.q_len,
                                 .heads = s.q_heads,
                                 .dim = s.dim})
                          .ok());
          args.o = {};
          args.delta = {delta.data, 0, s.q_len};
        }
        ASSERT_TRUE(member_->Backward({&args, 1}, options).ok());
        ASSERT_TRUE(member_->Wait().ok());
        args.delta = {};
      }
      results[run] = {Bits(args.dq, s.q_elements()),
                      Bits(segment_.dk, s.kv_elements()),
                      Bits(segment_.dv, s.kv_elements())};
    }
    EXPECT_TRUE(results[1] == results[0]) << s.q_len;
    EXPECT_TRUE(results[2] == results[0]) << "delta given, " << s.q_len;
    member_->Reset();
  }
}

TEST_F(CudaMemberComputeTest, NoScratchIsResourceExhaustedAndTheMemberGoesOn) {
  Draw({.q_len = 256, .kv_len = 256});
  ForwardArgs huge;
  huge.problem = problem_;
  // S and P of 4 TiB.
  KvSegment segment = segment_;
  segment.len = int64_t{1} << 20;
  huge.problem.q_len = int64_t{1} << 20;
  huge.problem.kv = {&segment, 1};
  huge.lse = {reinterpret_cast<float*>(Poisoned(4)), 0, int64_t{1} << 20};
  EXPECT_EQ(member_->Forward({&huge, 1}, {Algorithm::kNaive}).code(),
            absl::StatusCode::kResourceExhausted);
  const Shape shape{.q_len = 256, .kv_len = 256};
  const ForwardArgs args = Outputs(shape);
  ASSERT_TRUE(member_->Forward({&args, 1}, {}).ok());
  ASSERT_TRUE(member_->Wait().ok());
  EXPECT_FALSE(Bits(args.lse, shape.rows()) ==
               Bytes(4 * shape.rows(), std::byte{0x5A}));
  member_->Reset();
}

TEST_F(CudaMemberComputeTest, MemoryComesBackWithReset) {
  const Shape shape{.q_len = 512, .kv_len = 512, .q_heads = 4, .kv_heads = 4};
  int64_t warm = 0;
  for (int batch = 0; batch < 4; ++batch) {
    Draw(shape);
    const ForwardArgs args = Outputs(shape);
    ASSERT_TRUE(member_->Allocate(100 * kMiB).ok());
    ASSERT_TRUE(member_->Forward({&args, 1}, {}).ok());
    EXPECT_GE(PoolBytes(devices_[0]), warm + 100 * kMiB);
    ASSERT_TRUE(member_->Wait().ok());
    member_->Reset();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (batch == 0) {
      warm = PoolBytes(devices_[0]);
    } else {
      EXPECT_EQ(PoolBytes(devices_[0]), warm);
    }
  }
}

// Kernels of one device write what another pulls, which goes on after a kernel
// that takes long; and what is pulled is not overwritten before.
TEST_F(CudaMemberComputeTest, PullsWaitForKernels) {
  if (devices_.size() < 2) GTEST_SKIP() << "needs two GPUs";
  constexpr int kBatches = 20, kTurns = 10;
  constexpr int64_t kLong = 16 * kMiB, kMost = 100'000;
  const auto other =
      CudaMember::Create(devices_[1], DescribeGpu(devices_[1]).value()).value();
  std::vector<float> sent(kTurns * kMost), got(kTurns * kMost);
  const auto floats = [](std::byte* memory) {
    return reinterpret_cast<const float*>(memory);
  };
  for (int batch = 0; batch < kBatches; ++batch) {
    for (float& x : sent) x = static_cast<float>(random_() % 1000);
    std::byte* filler = member_->Allocate(4 * kLong).value();
    std::byte* x = member_->Allocate(4 * kTurns * kMost).value();
    std::byte* twice = member_->Allocate(4 * kMost).value();
    std::byte* pulled = other->Allocate(4 * kMost).value();
    std::byte* thrice = other->Allocate(4 * kTurns * kMost).value();
    ASSERT_TRUE(member_
                    ->Upload({.from = reinterpret_cast<std::byte*>(sent.data()),
                              .to = x,
                              .row_bytes = 4 * kTurns * kMost})
                    .ok());
    ASSERT_TRUE(member_->Record(Queue::kUpload, 0).ok());
    ASSERT_TRUE(member_->Await(Queue::kCompute, *member_, 0).ok());
    std::vector<int64_t> sizes;
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t size = 1 + static_cast<int64_t>(random_() % kMost);
      sizes.push_back(size);
      const BlockSum::Term long_terms[] = {{floats(filler), kLong},
                                           {floats(filler), kLong}};
      ASSERT_TRUE(member_
                      ->Sum({.terms = long_terms,
                             .to = filler,
                             .to_pitch = kLong,
                             .row_elements = kLong,
                             .rows = 1})
                      .ok());
      const float* mine = floats(x) + turn * kMost;
      const BlockSum::Term terms[] = {{mine, size}, {mine, size}};
      ASSERT_TRUE(member_
                      ->Sum({.terms = terms,
                             .to = twice,
                             .to_pitch = size,
                             .row_elements = size,
                             .rows = 1})
                      .ok());
      ASSERT_TRUE(member_->Record(Queue::kCompute, 1 + turn).ok());
      ASSERT_TRUE(other->Await(Queue::kPull, *member_, 1 + turn).ok());
      ASSERT_TRUE(
          other
              ->Pull(*member_,
                     {.from = twice, .to = pulled, .row_bytes = 4 * size})
              .ok());
      ASSERT_TRUE(other->Record(Queue::kPull, 2 * turn).ok());
      ASSERT_TRUE(member_->Await(Queue::kCompute, *other, 2 * turn).ok());
      ASSERT_TRUE(other->Await(Queue::kCompute, *other, 2 * turn).ok());
      const BlockSum::Term there[] = {{floats(pulled), size}};
      ASSERT_TRUE(other
                      ->Sum({.terms = there,
                             .to = thrice + 4 * turn * kMost,
                             .to_pitch = size,
                             .row_elements = size,
                             .rows = 1})
                      .ok());
      ASSERT_TRUE(other->Record(Queue::kCompute, 2 * turn + 1).ok());
      ASSERT_TRUE(other->Await(Queue::kPull, *other, 2 * turn + 1).ok());
    }
    ASSERT_TRUE(other->Await(Queue::kDownload, *other, 2 * kTurns - 1).ok());
    ASSERT_TRUE(other
                    ->Download({.from = thrice,
                                .to = reinterpret_cast<std::byte*>(got.data()),
                                .row_bytes = 4 * kTurns * kMost})
                    .ok());
    ASSERT_TRUE(member_->Wait().ok());
    ASSERT_TRUE(other->Wait().ok());
    member_->Reset();
    other->Reset();
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int64_t i = turn * kMost; i < turn * kMost + sizes[turn]; ++i) {
        ASSERT_EQ(got[i], 2 * sent[i]) << "turn " << turn << " of " << batch;
      }
    }
  }
}

// What a report says. On GPUs with NVLink, or in one PCIe switch, it is so.
TEST_F(CudaMemberComputeTest, SaysWhetherPeersReachEachOther) {
  if (devices_.size() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto backends = CreateCudaBackends({}).value();
  std::vector<std::unique_ptr<MemberStream>> members;
  for (const auto& backend : backends) {
    members.push_back(backend->NewMemberStream().value());
  }
  for (size_t to = 0; to < members.size(); ++to) {
    for (size_t from = 0; from < members.size(); ++from) {
      int can = 1;
      if (to != from) {
        ASSERT_EQ(cudaDeviceCanAccessPeer(&can, devices_[to], devices_[from]),
                  cudaSuccess);
      }
      EXPECT_EQ(members[to]->Reaches(*members[from]), can == 1)
          << to << " from " << from;
    }
  }
}

}  // namespace
}  // namespace attnd::cuda
