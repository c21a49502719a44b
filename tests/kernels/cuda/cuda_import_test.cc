// Memory that another process has exported, on a GPU: what is imported, what is
// refused, and what becomes of it when its owner goes.

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/exportable_memory.h"
#include "tests/kernels/cuda/kernel_families.h"
#include "tests/kernels/cuda/memory_owner.h"

namespace attnd {
namespace {

using testing::ExportableMemory;
using testing::MemoryOwner;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kBytes = 16 * kMiB;

using Bytes = std::vector<std::byte>;

Bytes RandomBytes(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = std::byte(random());
  return bytes;
}

class CudaImportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
    auto backends = CreateCudaBackends({});
    ASSERT_TRUE(backends.ok()) << backends.status();
    backends_ = *std::move(backends);
    backend_ = backends_.front().get();
    device_ = backend_->device().index;
    stream_ = backend_->NewStream().value();
    owner_ = std::make_unique<MemoryOwner>();
  }

  // What lies in a buffer, as a stream finds it.
  Bytes Read(const std::shared_ptr<DeviceBuffer>& buffer, int64_t bytes) {
    Bytes got(bytes);
    EXPECT_TRUE(stream_->Use(buffer).ok());
    EXPECT_TRUE(stream_->Download(buffer->data(), HostSpan(got)).ok());
    EXPECT_TRUE(stream_->Wait().ok());
    stream_->Reset();
    return got;
  }
  void ExpectInvalid(int fd, int64_t bytes, const char* what) {
    const absl::Status status = backend_->Import(fd, bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << what << ": " << status;
    std::printf("%s: %s\n", what, status.ToString().c_str());
  }
  // The device still does what it is asked.
  void ExpectInService() {
    const Bytes sent = RandomBytes(kMiB, 9);
    const ConstHostSpan span(sent);
    Bytes got(kMiB);
    std::byte* device = stream_->Allocate(kMiB).value();
    EXPECT_TRUE(stream_->Upload({&span, 1}, device).ok());
    EXPECT_TRUE(stream_->Download(device, HostSpan(got)).ok());
    EXPECT_TRUE(stream_->Wait().ok());
    stream_->Reset();
    EXPECT_TRUE(got == sent);
  }

  std::vector<std::unique_ptr<Backend>> backends_;
  Backend* backend_ = nullptr;
  int device_ = 0;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<MemoryOwner> owner_;
};

TEST_F(CudaImportTest, EachSeesWhatTheOtherWrites) {
  const auto exported = owner_->Allocate(kBytes, device_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  struct stat file = {};
  ASSERT_EQ(fstat(exported->get(), &file), 0);
  std::printf("a descriptor of GPU memory: mode %o, device %llx\n",
              file.st_mode, static_cast<unsigned long long>(file.st_rdev));
  const auto buffer = backend_->Import(exported->get(), owner_->allocated());
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % kTensorAlignment,
            0);
  const Bytes theirs = RandomBytes(kBytes, 1), ours = RandomBytes(kBytes, 2);
  ASSERT_TRUE(owner_->Write(theirs).ok());
  EXPECT_TRUE(Read(*buffer, kBytes) == theirs);
  const ConstHostSpan span(ours);
  ASSERT_TRUE(stream_->Use(*buffer).ok());
  ASSERT_TRUE(stream_->Upload({&span, 1}, (*buffer)->data()).ok());
  ASSERT_TRUE(stream_->Wait().ok());
  stream_->Reset();
  Bytes got(kBytes);
  ASSERT_TRUE(owner_->Read(absl::MakeSpan(got)).ok());
  EXPECT_TRUE(got == ours);
}

TEST_F(CudaImportTest, IsNotForTheHostToWrite) {
  const auto exported = owner_->Allocate(kBytes, device_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto buffer =
      backend_->Import(exported->get(), owner_->allocated()).value();
  const Bytes bytes(10);
  const ConstHostSpan span(bytes);
  EXPECT_FALSE(buffer->Write(0, {&span, 1}).ok());
  ExpectInService();
}

TEST_F(CudaImportTest, RefusesAnotherSize) {
  const auto exported = owner_->Allocate(kBytes, device_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  const int64_t size = owner_->allocated();
  const int64_t unit =
      ExportableMemory::Create(1, device_).value()->granularity();
  std::printf("granularity %lld\n", static_cast<long long>(unit));
  ExpectInvalid(exported->get(), 0, "0 bytes");
  ExpectInvalid(exported->get(), -size, "below 0");
  ExpectInvalid(exported->get(), 1, "1 byte");
  ExpectInvalid(exported->get(), size - 1, "one less");
  ExpectInvalid(exported->get(), size + 1, "one more");
  ExpectInvalid(exported->get(), unit, "the granularity");
  ExpectInvalid(exported->get(), size / 2, "half");
  ExpectInvalid(exported->get(), size - unit, "a granularity less");
  ExpectInvalid(exported->get(), size + unit, "a granularity more");
  ExpectInvalid(exported->get(), 2 * size, "twice");
  // More than there are addresses.
  EXPECT_FALSE(backend_
                   ->Import(exported->get(),
                            std::numeric_limits<int64_t>::max() / unit * unit)
                   .ok());
  EXPECT_TRUE(backend_->Import(exported->get(), size).ok());
  ExpectInService();
}

// Not ours to decide, but the reason for how sizes are checked.
TEST_F(CudaImportTest, SaysWhatTheDriverMaps) {
  const auto memory = ExportableMemory::Create(kBytes, device_).value();
  const int64_t size = memory->bytes(), unit = memory->granularity();
  for (int64_t bytes : {unit, size / 2, size - unit, size, size + unit}) {
    std::printf("mapping %lld of %lld bytes: %d\n",
                static_cast<long long>(bytes), static_cast<long long>(size),
                static_cast<int>(memory->TryToMap(bytes)));
  }
  EXPECT_EQ(memory->TryToMap(size), CUDA_SUCCESS);
  EXPECT_NE(memory->TryToMap(size + unit), CUDA_SUCCESS);
}

TEST_F(CudaImportTest, RefusesWhatIsNoGpuMemory) {
  int pair[2], ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  ASSERT_EQ(pipe(ends), 0);
  const Descriptor socket(pair[0]), peer(pair[1]), in(ends[0]), out(ends[1]);
  const Descriptor memory(memfd_create("no GPU", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(memory.get(), kBytes), 0);
  const Descriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const Descriptor zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  const Descriptor event(eventfd(0, EFD_CLOEXEC));
  // The file that memory is exported through, and a GPU's, with none.
  const Descriptor control(open("/dev/nvidiactl", O_RDWR | O_CLOEXEC));
  const Descriptor gpu(open("/dev/nvidia0", O_RDWR | O_CLOEXEC));
  ExpectInvalid(socket.get(), kBytes, "a socket");
  ExpectInvalid(in.get(), kBytes, "a pipe");
  ExpectInvalid(memory.get(), kBytes, "a memfd");
  ExpectInvalid(file.get(), kBytes, "a regular file");
  ExpectInvalid(null.get(), kBytes, "/dev/null");
  ExpectInvalid(zero.get(), kBytes, "/dev/zero");
  ExpectInvalid(event.get(), kBytes, "an eventfd");
  ExpectInvalid(control.get(), kBytes, "/dev/nvidiactl");
  ExpectInvalid(gpu.get(), kBytes, "/dev/nvidia0");
  ExpectInvalid(-1, kBytes, "none");
  ExpectInvalid(1'000'000, kBytes, "one that is not open");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ExpectInService();
}

TEST_F(CudaImportTest, RefusesAnotherGpus) {
  if (backends_.size() < 2) GTEST_SKIP() << "only one GPU here";
  Backend& other = *backends_[1];
  // Whatever its owner calls it.
  MemoryOwner sees_one(
      {"CUDA_VISIBLE_DEVICES=" + std::to_string(other.device().index)});
  for (MemoryOwner* owner : {owner_.get(), &sees_one}) {
    const int device = owner == owner_.get() ? other.device().index : 0;
    const auto exported = owner->Allocate(kBytes, device);
    ASSERT_TRUE(exported.ok()) << exported.status();
    ExpectInvalid(exported->get(), owner->allocated(), "another GPU's");
    const auto buffer = other.Import(exported->get(), owner->allocated());
    EXPECT_TRUE(buffer.ok()) << buffer.status();
  }
  ExpectInService();
}

TEST_F(CudaImportTest, MayBeImportedSeveralTimesAndWithoutItsDescriptor) {
  std::shared_ptr<DeviceBuffer> first, second;
  const Bytes bytes = RandomBytes(kBytes, 3);
  {
    const auto exported = owner_->Allocate(kBytes, device_);
    ASSERT_TRUE(exported.ok()) << exported.status();
    first = backend_->Import(exported->get(), owner_->allocated()).value();
    second = backend_->Import(exported->get(), owner_->allocated()).value();
  }
  ASSERT_TRUE(owner_->Write(bytes).ok());
  EXPECT_TRUE(Read(first, kBytes) == bytes);
  first = nullptr;
  EXPECT_TRUE(Read(second, kBytes) == bytes);
}

TEST_F(CudaImportTest, StaysWhenItsOwnerHasGone) {
  const Bytes bytes = RandomBytes(kBytes, 4);
  for (bool killed : {false, true}) {
    const auto exported = owner_->Allocate(kBytes, device_);
    ASSERT_TRUE(exported.ok()) << exported.status();
    const auto buffer =
        backend_->Import(exported->get(), owner_->allocated()).value();
    ASSERT_TRUE(owner_->Write(bytes).ok());
    if (killed) {
      owner_->Kill();
    } else {
      ASSERT_TRUE(owner_->GiveUp().ok());
    }
    EXPECT_TRUE(Read(buffer, kBytes) == bytes) << killed;
  }
  ExpectInService();
}

TEST_F(CudaImportTest, LeavesNothingBehind) {
  const auto free_bytes = [this] {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaSetDevice(device_), cudaSuccess);
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<int64_t>(free);
  };
  constexpr int64_t kMuch = int64_t{1} << 30;
  const auto round = [&](int64_t wrong) {
    const auto exported = owner_->Allocate(kMuch, device_);
    ASSERT_TRUE(exported.ok()) << exported.status();
    const auto buffer =
        backend_->Import(exported->get(), owner_->allocated() + wrong);
    EXPECT_EQ(buffer.ok(), wrong == 0);
    ASSERT_TRUE(owner_->GiveUp().ok());
  };
  round(0);
  const int64_t before = free_bytes();
  for (int n = 0; n < 50; ++n) {
    round(0);
    round(2 * kMuch);
    round(-kMuch / 2);
  }
  // Others may use the GPU too, but 150 GiB would show.
  EXPECT_GT(free_bytes(), before - 2 * kMuch);
}

// A kernel that takes some tens of milliseconds reads memory whose owner goes.
class CudaOwnerGoesTest : public CudaImportTest,
                          public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr int64_t kLen = 16384, kHeads = 16, kDim = 128;
  static constexpr int64_t kTensor = kLen * kHeads * kDim * 2;
};

TEST_P(CudaOwnerGoesTest, WhileAKernelReads) {
  const auto exported = owner_->Allocate(3 * kTensor, device_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto buffer =
      backend_->Import(exported->get(), owner_->allocated()).value();
  // Small numbers of either sign.
  Bytes inputs = RandomBytes(3 * kTensor, 5);
  for (size_t i = 1; i < inputs.size(); i += 2) {
    inputs[i] = (inputs[i] & std::byte{0x80}) | std::byte{0x3e};
  }
  ASSERT_TRUE(owner_->Write(inputs).ok());
  KvSegment segment;
  segment.len = kLen;
  const auto view = [&](int n) {
    return ConstTensorView{buffer->data() + n * kTensor, DType::kBF16, 0,
                           kHeads * kDim, kDim};
  };
  segment.k = view(1);
  segment.v = view(2);
  ForwardArgs args;
  args.problem.batch = 1;
  args.problem.q_len = kLen;
  args.problem.q_heads = args.problem.kv_heads = kHeads;
  args.problem.head_dim = args.problem.value_dim = kDim;
  args.problem.q = view(0);
  args.problem.kv = {&segment, 1};
  args.problem.mask.causal = true;
  args.problem.scale = 0.088f;
  Bytes o[2];
  for (bool goes : {false, true}) {
    o[goes].resize(kTensor);
    ASSERT_TRUE(stream_->Use(buffer).ok());
    std::byte* out = stream_->MapOutput(HostSpan(o[goes])).value();
    args.o = {out, DType::kBF16, 0, kHeads * kDim, kDim};
    // Several times, so that it goes while they run.
    for (int n = 0; n < 8; ++n) {
      ASSERT_TRUE(testing::Enqueue(args, {}, *stream_).ok());
    }
    if (goes && GetParam()) {
      owner_->Kill();
    } else if (goes) {
      ASSERT_TRUE(owner_->GiveUp().ok());
    }
    ASSERT_TRUE(stream_->Download(out, HostSpan(o[goes])).ok());
    const absl::StatusOr<PhaseTimes> times = stream_->Wait();
    ASSERT_TRUE(times.ok()) << times.status();
    stream_->Reset();
  }
  EXPECT_TRUE(o[0] == o[1]);
  ExpectInService();
}

INSTANTIATE_TEST_SUITE_P(GivesUpAndIsKilled, CudaOwnerGoesTest,
                         ::testing::Bool());

}  // namespace
}  // namespace attnd

int main(int argc, char** argv) {
  if (const auto status = attnd::testing::RunAsMemoryOwner(argc, argv)) {
    return *status;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
