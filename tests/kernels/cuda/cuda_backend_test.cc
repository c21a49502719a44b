// The backend on a GPU, but for what its kernels compute.

#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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

// 64 rows and columns of one head over zeros: every LSE is ln 64, O is 0.
struct SmallForward {
  explicit SmallForward(std::byte* device) {
    segment.k = segment.v = {device, DType::kBF16, 0, 64, 64};
    segment.len = 64;
    args.problem.batch = 1;
    args.problem.q_len = 64;
    args.problem.q_heads = args.problem.kv_heads = 1;
    args.problem.head_dim = args.problem.value_dim = 64;
    args.problem.q = segment.k;
    args.problem.kv = {&segment, 1};
  }

  static constexpr int64_t kBytes = 64 * 64 * 2;
  KvSegment segment;
  ForwardArgs args;
};

class CudaBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
    auto backends = CreateCudaBackends({});
    ASSERT_TRUE(backends.ok()) << backends.status();
    backends_ = *std::move(backends);
    backend_ = backends_.front().get();
  }

  std::vector<std::unique_ptr<Backend>> backends_;
  Backend* backend_ = nullptr;
};

TEST_F(CudaBackendTest, OneForEveryGpu) {
  EXPECT_EQ(backends_.size(), CudaDeviceCount());
  for (const auto& backend : backends_) {
    const DeviceInfo& device = backend->device();
    EXPECT_EQ(device.kind, "cuda");
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, int64_t{1} << 30);
    EXPECT_TRUE(backend->NewStream().ok());
  }
}

TEST_F(CudaBackendTest, EachIsToldFromTheOthers) {
  std::set<std::string> uuids;
  for (const auto& backend : backends_) {
    EXPECT_EQ(backend->device().uuid.size(), 16);
    uuids.insert(backend->device().uuid);
    EXPECT_GE(backend->device().numa_node, -1);
  }
  EXPECT_EQ(uuids.size(), backends_.size());
}

TEST_F(CudaBackendTest, ThoseThatAreNamedInThatOrder) {
  const int index = backend_->device().index;
  CudaOptions options;
  options.devices = {index};
  const auto one = CreateCudaBackends(options);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->size(), 1);
  EXPECT_EQ(one->front()->device().index, index);
  options.devices = {index, 4096};
  const absl::Status missing = CreateCudaBackends(options).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("4096"));
}

TEST_F(CudaBackendTest, SaysWhatItRuns) {
  const SmallForward small(nullptr);
  const Problem& problem = small.args.problem;
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kNaive, Algorithm::kFlashAttention1,
        Algorithm::kFlashAttention2}) {
    const GroupOptions options{algorithm};
    EXPECT_TRUE(backend_->Supports(Op::kForward, problem, options).ok());
    const KernelInfo kernel = backend_->Kernel(Op::kForward, problem, options);
    EXPECT_THAT(kernel.name, StartsWith("cuda/"));
    EXPECT_NE(kernel.algorithm, Algorithm::kAuto);
    EXPECT_GE(backend_->ScratchBytes(Op::kForward, problem, options), 0);
    EXPECT_GT(backend_->CostFlops(Op::kForward, problem, options), 0);
  }
}

TEST_F(CudaBackendTest, SaysWhatBackwardItRuns) {
  const SmallForward small(nullptr);
  const Problem& problem = small.args.problem;
  for (const Algorithm algorithm :
       {Algorithm::kAuto, Algorithm::kFlashAttention2, Algorithm::kNaive}) {
    for (bool deterministic : {false, true}) {
      const GroupOptions options{algorithm, deterministic};
      EXPECT_TRUE(backend_->Supports(Op::kBackward, problem, options).ok());
      const KernelInfo kernel =
          backend_->Kernel(Op::kBackward, problem, options);
      EXPECT_THAT(kernel.name, StartsWith("cuda/"));
      EXPECT_NE(kernel.algorithm, Algorithm::kAuto);
      EXPECT_GE(backend_->ScratchBytes(Op::kBackward, problem, options), 0);
      EXPECT_GT(backend_->CostFlops(Op::kBackward, problem, options),
                backend_->CostFlops(Op::kForward, problem, options));
    }
  }
}

TEST_F(CudaBackendTest, RefusesBackwardByWhatHasNoKernelForIt) {
  const SmallForward small(nullptr);
  for (const Algorithm algorithm :
       {Algorithm::kFlashAttention1, Algorithm::kOnlineSoftmax}) {
    const absl::Status supports =
        backend_->Supports(Op::kBackward, small.args.problem, {algorithm});
    EXPECT_EQ(supports.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(supports.message()), HasSubstr("backward"));
  }
}

TEST_F(CudaBackendTest, HostMemoryIsPinnedAndOutlivesTheBackend) {
  std::shared_ptr<HostMemory> memory = backend_->host_memory();
  std::byte* block = memory->Allocate(3 * kMiB);
  ASSERT_NE(block, nullptr);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, block), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  backends_.clear();
  std::memset(block, 1, 3 * kMiB);
  std::thread([&] { memory->Free(block, 3 * kMiB); }).join();
  EXPECT_EQ(memory->Allocate(3 * kMiB), block);
  memory->Free(block, 3 * kMiB);
}

TEST_F(CudaBackendTest, RunsABatch) {
  const auto stream = backend_->NewStream().value();
  const auto memory = backend_->host_memory();
  std::byte* host = memory->Allocate(64 * 4);
  const HostSpan lse(host, 64 * 4);
  const std::vector<std::byte> zeros(SmallForward::kBytes);
  const ConstHostSpan span(zeros);
  for (int batch = 0; batch < 3; ++batch) {
    std::byte* device = stream->Allocate(SmallForward::kBytes).value();
    std::byte* out = stream->MapOutput(lse).value();
    SmallForward small(device);
    small.args.lse = {reinterpret_cast<float*>(out), 64, 64};
    ASSERT_TRUE(stream->Upload({&span, 1}, device).ok());
    ASSERT_TRUE(stream->Forward({&small.args, 1}, {}).ok());
    ASSERT_TRUE(stream->Download(out, lse).ok());
    const PhaseTimes times = stream->Wait().value();
    stream->Reset();
    EXPECT_GT(times.upload, absl::ZeroDuration());
    EXPECT_GT(times.compute, absl::ZeroDuration());
    EXPECT_GT(times.download, absl::ZeroDuration());
    const float* got = reinterpret_cast<const float*>(lse.data());
    for (int i = 0; i < 64; ++i) ASSERT_NEAR(got[i], std::log(64.0f), 1e-5);
  }
  memory->Free(host, 64 * 4);
}

TEST_F(CudaBackendTest, ABatchMayReadABuffer) {
  const auto stream = backend_->NewStream().value();
  const std::vector<std::byte> zeros(SmallForward::kBytes);
  const ConstHostSpan span(zeros);
  const std::shared_ptr<DeviceBuffer> buffer =
      backend_->NewBuffer(SmallForward::kBytes).value();
  ASSERT_TRUE(buffer->Write(0, {&span, 1}).ok());
  std::vector<float> got(64);
  const HostSpan lse(reinterpret_cast<std::byte*>(got.data()), 64 * 4);
  for (int batch = 0; batch < 3; ++batch) {
    std::fill(got.begin(), got.end(), 0.0f);
    ASSERT_TRUE(stream->Use(buffer).ok());
    std::byte* out = stream->MapOutput(lse).value();
    SmallForward small(buffer->data());
    small.args.lse = {reinterpret_cast<float*>(out), 64, 64};
    ASSERT_TRUE(stream->Forward({&small.args, 1}, {}).ok());
    EXPECT_EQ(stream->Proceed([] { return true; }).value(), 1);
    ASSERT_TRUE(stream->Download(out, lse).ok());
    const int mark = stream->Mark().value();
    ASSERT_TRUE(stream->WaitFor(mark).ok());
    for (int i = 0; i < 64; ++i) ASSERT_NEAR(got[i], std::log(64.0f), 1e-5);
    ASSERT_TRUE(stream->Wait().ok());
    stream->Reset();
  }
}

// Every P is 1/64, and dO is 0 but for one 1: dV is 1/64 in that dim, or 0.
TEST_F(CudaBackendTest, RunsABatchOfBackward) {
  const auto stream = backend_->NewStream().value();
  const auto memory = backend_->host_memory();
  constexpr int64_t kRowsBytes = 64 * 4, kDvBytes = 64 * 64 * 4;
  std::byte* host = memory->Allocate(kDvBytes);
  const HostSpan dv(host, kDvBytes);
  std::vector<std::byte> zeros(SmallForward::kBytes), d_o(SmallForward::kBytes);
  d_o[2 * (5 * 64 + 3) + 1] = std::byte{0x3f};  // 0x3f80: 1 in bf16
  d_o[2 * (5 * 64 + 3)] = std::byte{0x80};
  std::vector<float> lse(64, std::log(64.0f));
  const auto upload = [&](ConstHostSpan from) {
    std::byte* to = stream->Allocate(from.size()).value();
    EXPECT_TRUE(stream->Upload({&from, 1}, to).ok());
    return to;
  };
  for (int batch = 0; batch < 3; ++batch) {
    SmallForward small(upload(zeros));
    BackwardArgs args;
    args.d_o = args.o = small.segment.k;
    args.d_o.data = upload(d_o);
    args.lse.data = reinterpret_cast<const float*>(upload(ConstHostSpan(
        reinterpret_cast<const std::byte*>(lse.data()), kRowsBytes)));
    std::byte* out = stream->MapOutput(dv).value();
    small.segment.dv = {out, DType::kF32, 0, 64, 64};
    args.problem = small.args.problem;
    ASSERT_TRUE(stream->Backward({&args, 1}, {}).ok());
    ASSERT_TRUE(stream->Download(out, dv).ok());
    const PhaseTimes times = stream->Wait().value();
    stream->Reset();
    EXPECT_GT(times.compute, absl::ZeroDuration());
    const float* got = reinterpret_cast<const float*>(dv.data());
    for (int i = 0; i < 64 * 64; ++i) {
      ASSERT_NEAR(got[i], i % 64 == 3 ? 1 / 64.0f : 0.0f, 1e-6) << i;
    }
  }
  memory->Free(host, kDvBytes);
}

TEST_F(CudaBackendTest, TensorsComeBackWithReset) {
  const int device = backend_->device().index;
  const auto stream = backend_->NewStream().value();
  const int64_t before = PoolBytes(device);
  ASSERT_TRUE(stream->Allocate(100 * kMiB).ok());
  std::byte here{};
  ASSERT_TRUE(stream->MapOutput(HostSpan(&here, 50 * kMiB)).ok());
  EXPECT_GE(PoolBytes(device), before + 150 * kMiB);
  ASSERT_TRUE(stream->Wait().ok());
  stream->Reset();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(PoolBytes(device), before);
}

// All of the device's memory but a little is taken by someone else.
TEST_F(CudaBackendTest, AFullDeviceIsResourceExhaustedUntilItIsNot) {
  ASSERT_EQ(cudaSetDevice(backend_->device().index), cudaSuccess);
  const auto stream = backend_->NewStream().value();
  std::vector<void*> taken;
  for (size_t chunk = size_t{64} << 30; chunk >= 64 * kMiB;) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, chunk) == cudaSuccess) {
      taken.push_back(memory);
    } else {
      (void)cudaGetLastError();
      chunk /= 2;
    }
  }
  // More than the pool can have kept.
  const int64_t much = int64_t{5} << 30;
  EXPECT_EQ(stream->Allocate(much).status().code(),
            absl::StatusCode::kResourceExhausted);
  for (void* memory : taken) EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_TRUE(stream->Allocate(much).ok());
  EXPECT_TRUE(stream->Wait().ok());
  stream->Reset();
}

}  // namespace
}  // namespace attnd
