#ifndef ATTND_TESTS_KERNELS_CUDA_ONE_MEMBER_H_
#define ATTND_TESTS_KERNELS_CUDA_ONE_MEMBER_H_

// A GPU as a member of a team, for tests of its kernels of rows. Skips without
// a GPU.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_member.h"
#include "kernels/cuda/device/gpu.h"

namespace attnd::cuda {

class OneMemberTest : public ::testing::Test {
 public:
  using Bytes = std::vector<std::byte>;

 protected:
  void SetUp() override {
    const auto usable = UsableDevices();
    if (!usable.ok()) GTEST_SKIP() << "no GPU here: " << usable.status();
    if (usable->empty()) GTEST_SKIP() << "no GPU that is recent enough here";
    const int device = usable->front();
    member_ = CudaMember::Create(device, DescribeGpu(device).value()).value();
  }

  std::byte* OnDevice(const Bytes& host) {
    const auto bytes = static_cast<int64_t>(host.size());
    std::byte* memory = member_->Allocate(bytes).value();
    EXPECT_TRUE(
        member_->Upload({.from = host.data(), .to = memory, .row_bytes = bytes})
            .ok());
    return memory;
  }
  // Kernels come after all that was uploaded, and before what is fetched.
  void BeforeKernels() {
    ASSERT_TRUE(member_->Record(Queue::kUpload, 0).ok());
    ASSERT_TRUE(member_->Await(Queue::kCompute, *member_, 0).ok());
  }
  Bytes Fetch(const std::byte* memory, size_t bytes) {
    Bytes host(bytes);
    EXPECT_TRUE(member_->Record(Queue::kCompute, 1).ok());
    EXPECT_TRUE(member_->Await(Queue::kDownload, *member_, 1).ok());
    EXPECT_TRUE(member_
                    ->Download({.from = memory,
                                .to = host.data(),
                                .row_bytes = static_cast<int64_t>(bytes)})
                    .ok());
    EXPECT_TRUE(member_->Wait().ok());
    member_->Reset();
    return host;
  }

  std::unique_ptr<CudaMember> member_;

 private:
  using Queue = MemberStream::Queue;
};

}  // namespace attnd::cuda

#endif  // ATTND_TESTS_KERNELS_CUDA_ONE_MEMBER_H_
