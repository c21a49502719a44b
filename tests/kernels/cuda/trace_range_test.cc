// The ranges that a tracer sees of a stream and of a member.

#include "kernels/cuda/device/trace_range.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_member.h"
#include "kernels/cuda/cuda_stream.h"
#include "tests/kernels/cuda/fake_member.h"
#include "tests/kernels/cuda/fake_runtime.h"
#include "tests/kernels/cuda/fake_tracer.h"

namespace attnd::cuda {
namespace {

using ::testing::ElementsAre;
using testing::FakeMemberTest;

constexpr int64_t kBytes = 4000;

class TraceRangeTest : public FakeMemberTest {
 protected:
  void SetUp() override {
    FakeMemberTest::SetUp();
    testing::TakeTraced();
  }
};

TEST_F(TraceRangeTest, ShowsWhatAStreamDoesForAGroup) {
  auto stream = CudaStream::Create(0, Gpu(), {.under_way = 1}).value();
  std::vector<std::byte> host(kBytes);
  std::byte* device = stream->Allocate(kBytes).value();
  const ConstHostSpan halves[] = {ConstHostSpan(host).first(1000),
                                  ConstHostSpan(host).subspan(1000)};
  kernels_.slices = 2;
  ASSERT_TRUE(stream->Upload(halves, device).ok());
  const std::vector<ForwardArgs> group(3);
  ASSERT_TRUE(stream->Forward(group, {}).ok());
  ASSERT_TRUE(stream->Proceed([] { return false; }).ok());
  ASSERT_TRUE(stream->Download(device, absl::MakeSpan(host)).ok());
  ASSERT_TRUE(stream->Wait().ok());
  EXPECT_THAT(testing::TakeTraced(),
              ElementsAre("attnd: upload 4000", "-", "attnd: forward 3", "-",
                          "attnd: further slices 0", "-",
                          "attnd: download 4000", "-", "attnd: wait 0", "-"));
  ASSERT_TRUE(stream->Backward(std::vector<BackwardArgs>(2), {}).ok());
  EXPECT_THAT(testing::TakeTraced(), ElementsAre("attnd: backward 2", "-"));
}

TEST_F(TraceRangeTest, ShowsWhatAMemberDoesForItsTeam) {
  CudaMember &member = *members_[0], &peer = *members_[1];
  std::vector<std::byte> host(kBytes);
  std::byte* a = member.Allocate(kBytes).value();
  std::byte* b = peer.Allocate(kBytes).value();
  const auto copy = [](const std::byte* from, std::byte* to) {
    return BlockCopy{.from = from,
                     .to = to,
                     .row_bytes = kBytes / 4,
                     .rows = 4,
                     .from_pitch = kBytes / 4,
                     .to_pitch = kBytes / 4};
  };
  ASSERT_TRUE(member.Upload(copy(host.data(), a)).ok());
  ASSERT_TRUE(member.Pull(peer, copy(b, a)).ok());
  const BlockCopy two[] = {copy(b, a), copy(b, a)};
  ASSERT_TRUE(member.PullAll(peer, two).ok());
  ASSERT_TRUE(member.Forward(std::vector<ForwardArgs>(2), {}).ok());
  ASSERT_TRUE(member.Backward(std::vector<BackwardArgs>(1), {}).ok());
  const BlockSum::Term term = {reinterpret_cast<const float*>(a), 10};
  ASSERT_TRUE(member
                  .Sum({.terms = {&term, 1},
                        .to = a,
                        .to_pitch = 10,
                        .row_elements = 10,
                        .rows = 5})
                  .ok());
  ASSERT_TRUE(member.Dot({}).ok());
  ASSERT_TRUE(member.Merge({}).ok());
  ASSERT_TRUE(member.Download(copy(a, host.data())).ok());
  ASSERT_TRUE(member.Wait().ok());
  EXPECT_THAT(
      testing::TakeTraced(),
      ElementsAre("attnd: team upload 4000", "-", "attnd: team pull 4000", "-",
                  "attnd: team pull 8000", "-", "attnd: team forward 2", "-",
                  "attnd: team backward 1", "-", "attnd: team sum 5", "-",
                  "attnd: team dot 0", "-", "attnd: team merge 0", "-",
                  "attnd: team download 4000", "-", "attnd: team wait 0", "-"));
}

TEST_F(TraceRangeTest, EndsWhereACallFails) {
  auto stream = CudaStream::Create(0, Gpu()).value();
  testing::FailFakeCall(0, cudaErrorIllegalAddress);
  EXPECT_FALSE(stream->Forward(std::vector<ForwardArgs>(1), {}).ok());
  EXPECT_THAT(testing::TakeTraced(), ElementsAre("attnd: forward 1", "-"));
}

TEST_F(TraceRangeTest, NamesEachStepOnce) {
  const auto step = [] { const TraceRange<trace::Wait> range; };
  step();
  const int names = testing::TracedNames();
  step();
  EXPECT_EQ(testing::TracedNames(), names);
}

}  // namespace
}  // namespace attnd::cuda
