// A real fault of the device. It leaves its process without the GPU, so it
// happens in a process of its own.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"

namespace attnd {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(1);
}

// Reads where there is nothing.
absl::Status ForwardOverNothing(Stream& stream) {
  absl::StatusOr<std::byte*> lse = stream.Allocate(64 * 4);
  if (!lse.ok()) return lse.status();
  KvSegment segment;
  segment.k = segment.v = {reinterpret_cast<void*>(kTensorAlignment),
                           DType::kF32, 0, 64, 64};
  segment.len = 64;
  ForwardArgs args;
  args.problem.batch = 1;
  args.problem.q_len = 64;
  args.problem.q_heads = args.problem.kv_heads = 1;
  args.problem.head_dim = args.problem.value_dim = 64;
  args.problem.q = segment.k;
  args.problem.kv = {&segment, 1};
  args.lse = {reinterpret_cast<float*>(*lse), 64, 64};
  absl::Status status = stream.Forward({&args, 1}, {});
  return status.ok() ? stream.Wait().status() : status;
}

absl::Status UploadAndWait(Stream& stream) {
  const std::vector<std::byte> bytes(3 << 20);
  const ConstHostSpan span(bytes);
  absl::StatusOr<std::byte*> device = stream.Allocate(bytes.size());
  if (!device.ok()) return device.status();
  absl::Status status = stream.Upload({&span, 1}, *device);
  return status.ok() ? stream.Wait().status() : status;
}

// Ends the process with 0 if all went as it should.
void FaultAndGoOn() {
  auto backends = CreateCudaBackends({});
  Require(backends.ok(), "no backends");
  Backend& backend = *backends->front();
  auto broken = backend.NewStream();
  auto beside = backend.NewStream();
  Require(broken.ok() && beside.ok(), "no streams");
  const std::shared_ptr<HostMemory> memory = backend.host_memory();
  std::byte* host = memory->Allocate(1 << 20);
  Require(UploadAndWait(**broken).ok(), "it does not work before");
  Require(UploadAndWait(**beside).ok(), "it does not work before");

  Require(absl::IsInternal(ForwardOverNothing(**broken)), "no fault");
  Require(absl::IsInternal(UploadAndWait(**broken)), "it works again");
  Require(absl::IsInternal(UploadAndWait(**beside)), "another one works");
  Require(!backend.NewStream().ok(), "a new one works");
  (*beside)->Reset();
  beside->reset();
  broken->reset();
  backends->clear();
  memory->Free(host, 1 << 20);
  std::exit(0);
}

TEST(CudaFaultDeathTest, IsInternalForEveryStreamAndEndsNoProcess) {
  if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
  // The child starts anew: a driver does not survive a fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(FaultAndGoOn(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace attnd
