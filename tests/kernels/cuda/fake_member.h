#ifndef ATTND_TESTS_KERNELS_CUDA_FAKE_MEMBER_H_
#define ATTND_TESTS_KERNELS_CUDA_FAKE_MEMBER_H_

// Members of a team on a runtime that fails when it is told to, and that does
// everything as late as it may, with kernels that are fakes, too.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_member.h"
#include "kernels/cuda/team/sum_kernels.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd::testing {

inline constexpr int64_t kMiB = int64_t{1} << 20;

// What forward and backward do, in place of kernels, and what was seen of them.
struct FakeKernels {
  int64_t scratch = kMiB;  // that they take of a workspace
  int slices = 1;          // in how many they are enqueued
  bool faults = false;     // whether they break the device
  int slices_over = 0;
  // Of the last sum that was launched, and of the last merge.
  cuda::SumParams last_sum = {};
  cuda::MergeParams last_merge = {};
  bool last_aligned = false;
};
FakeKernels& TheFakeKernels();

class FakeMemberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    kernels_ = {};
    before_ = FakeCuda();
    for (int device : {0, 1}) members_.push_back(NewMember(device));
  }
  void TearDown() override {
    FailFakeCall(-1, cudaSuccess);
    members_.clear();
    RepairFakeDevice();
    LetFakePeersReach(true);
    SetFakeDevices(3);
    SetFakeDeviceMemory(int64_t{1} << 30);
    SetFakePinnedMemory(int64_t{1} << 30);
  }

  static std::unique_ptr<cuda::CudaMember> NewMember(int device) {
    return cuda::CudaMember::Create(device, cuda::Gpu()).value();
  }
  // Waits for all, then resets all, whatever comes of it.
  static absl::Status WaitAndReset(
      const std::vector<std::unique_ptr<cuda::CudaMember>>& members) {
    absl::Status status;
    for (const auto& member : members) status.Update(member->Wait().status());
    for (const auto& member : members) member->Reset();
    return status;
  }
  // Whether all that the process held at SetUp is all that it holds.
  void ExpectNothingHeld() const {
    const FakeCudaUse now = FakeCuda();
    EXPECT_EQ(now.device_bytes, before_.device_bytes);
    EXPECT_EQ(now.pinned_bytes, before_.pinned_bytes);
    EXPECT_EQ(now.streams, before_.streams);
    EXPECT_EQ(now.events, before_.events);
  }

  FakeKernels& kernels_ = TheFakeKernels();
  FakeCudaUse before_;
  std::vector<std::unique_ptr<cuda::CudaMember>> members_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_FAKE_MEMBER_H_
