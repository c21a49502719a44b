// A real fault of the device. It leaves its process without the GPU, so it
// happens in a process of its own.

#include <cstdlib>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/device_fault.h"

namespace attnd {
namespace {

using testing::BreakDevice;
using testing::Require;

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
  Require(backends.ok(), "there are backends");
  Backend& backend = *backends->front();
  auto broken = backend.NewStream();
  auto beside = backend.NewStream();
  Require(broken.ok() && beside.ok(), "there are streams");
  const std::shared_ptr<HostMemory> memory = backend.host_memory();
  std::byte* host = memory->Allocate(1 << 20);
  Require(UploadAndWait(**broken).ok(), "it works before");
  Require(UploadAndWait(**beside).ok(), "it works before");

  Require(absl::IsInternal(BreakDevice(**broken)), "a fault is INTERNAL");
  Require(absl::IsInternal(UploadAndWait(**broken)), "it stays so");
  Require(absl::IsInternal(UploadAndWait(**beside)), "for other streams too");
  Require(!backend.NewStream().ok(), "there is no new one");
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
