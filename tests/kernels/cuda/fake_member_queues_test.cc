// What a member's calls put into its queues.

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_member.h"
#include "tests/kernels/cuda/fake_member.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd::cuda {
namespace {

using testing::FakeCuda;
using testing::FakeMemberTest;
using testing::kMiB;
using Queue = MemberStream::Queue;

constexpr int64_t kFloats = 1000;
constexpr int64_t kRowBytes = kFloats * 4;

TEST_F(FakeMemberTest, AGroupIsEnqueuedToItsEnd) {
  kernels_.slices = 7;
  ASSERT_TRUE(members_[0]->Forward({}, {}).ok());
  EXPECT_GE(kernels_.slices_over, 4);
  const PhaseTimes times = members_[0]->Wait().value();
  EXPECT_EQ(kernels_.slices_over, 7);
  EXPECT_GT(times.compute, absl::ZeroDuration());
}

// What is awaited already costs nothing, nor does what nobody comes after.
TEST_F(FakeMemberTest, EachPointIsAwaitedOnce) {
  CudaMember &first = *members_[0], &second = *members_[1];
  std::vector<float> host(kFloats);
  const auto* from = reinterpret_cast<const std::byte*>(host.data());
  std::byte* a = first.Allocate(kRowBytes).value();
  std::byte* b = second.Allocate(kRowBytes).value();
  const auto pull = [&] {
    ASSERT_TRUE(
        second.Pull(first, {.from = a, .to = b, .row_bytes = kRowBytes}).ok());
  };
  for (int point = 0; point < 5; ++point) {
    ASSERT_TRUE(
        first.Upload({.from = from, .to = a, .row_bytes = kRowBytes}).ok());
    ASSERT_TRUE(first.Record(Queue::kUpload, point).ok());
  }
  pull();  // makes the stream, which awaits its memory
  const int64_t waits = FakeCuda().waits_ever;
  for (int point : {4, 3, 0, 4, 2}) {
    ASSERT_TRUE(second.Await(Queue::kPull, first, point).ok());
  }
  EXPECT_EQ(FakeCuda().waits_ever, waits);
  pull();
  pull();
  EXPECT_EQ(FakeCuda().waits_ever, waits + 1);
  // Its own queue is in order anyway.
  ASSERT_TRUE(second.Record(Queue::kPull, 9).ok());
  ASSERT_TRUE(second.Await(Queue::kPull, second, 9).ok());
  pull();
  EXPECT_EQ(FakeCuda().waits_ever, waits + 1);
  ASSERT_TRUE(WaitAndReset(members_).ok());
}

// A point in a queue stands behind what the queue awaits, also where nothing
// has come into it.
TEST_F(FakeMemberTest, PointsPassOnWhatTheirQueueAwaits) {
  CudaMember &first = *members_[0], &second = *members_[1];
  std::vector<float> host(kFloats, 3.0f), got(kFloats);
  std::byte* a = first.Allocate(kRowBytes).value();
  std::byte* b = second.Allocate(kRowBytes).value();
  ASSERT_TRUE(first
                  .Upload({.from = reinterpret_cast<std::byte*>(host.data()),
                           .to = a,
                           .row_bytes = kRowBytes})
                  .ok());
  ASSERT_TRUE(first.Record(Queue::kUpload, 0).ok());
  ASSERT_TRUE(second.Await(Queue::kUpload, first, 0).ok());
  ASSERT_TRUE(second.Record(Queue::kUpload, 1).ok());
  ASSERT_TRUE(second.Await(Queue::kCompute, second, 1).ok());
  ASSERT_TRUE(second.Record(Queue::kCompute, 2).ok());
  ASSERT_TRUE(second.Await(Queue::kPull, second, 2).ok());
  ASSERT_TRUE(second.Record(Queue::kPull, 3).ok());
  ASSERT_TRUE(
      second.Pull(first, {.from = a, .to = b, .row_bytes = kRowBytes}).ok());
  ASSERT_TRUE(second.Record(Queue::kPull, 4).ok());
  ASSERT_TRUE(second.Await(Queue::kDownload, second, 4).ok());
  ASSERT_TRUE(second
                  .Download({.from = b,
                             .to = reinterpret_cast<std::byte*>(got.data()),
                             .row_bytes = kRowBytes})
                  .ok());
  ASSERT_TRUE(second.Wait().ok());  // nobody has waited for the first
  EXPECT_EQ(got, host);
  ASSERT_TRUE(WaitAndReset(members_).ok());
}

TEST_F(FakeMemberTest, PointsGoWithReset) {
  CudaMember& member = *members_[0];
  ASSERT_TRUE(member.Record(Queue::kUpload, 5).ok());
  ASSERT_TRUE(member.Await(Queue::kPull, member, 5).ok());
  ASSERT_TRUE(WaitAndReset(members_).ok());
  EXPECT_FALSE(member.Await(Queue::kPull, member, 5).ok());
}

TEST_F(FakeMemberTest, KeepsLittleScratch) {
  const int64_t before = FakeCuda().device_bytes;
  kernels_.scratch = 300 * kMiB;
  ASSERT_TRUE(members_[0]->Forward({}, {}).ok());
  ASSERT_TRUE(WaitAndReset(members_).ok());
  kernels_.scratch = kMiB;
  ASSERT_TRUE(members_[0]->Forward({}, {}).ok());
  ASSERT_TRUE(WaitAndReset(members_).ok());
  EXPECT_LT(FakeCuda().device_bytes, before + 10 * kMiB);
}

// Pulls from different devices do not wait for each other.
TEST_F(FakeMemberTest, EachPeerHasAStream) {
  members_.push_back(NewMember(2));
  const int before = FakeCuda().streams;
  std::byte* to = members_[0]->Allocate(100).value();
  for (int turn = 0; turn < 3; ++turn) {
    for (int peer : {1, 2}) {
      std::byte* from = members_[peer]->Allocate(100).value();
      ASSERT_TRUE(members_[0]
                      ->Pull(*members_[peer],
                             {.from = from, .to = to, .row_bytes = 100})
                      .ok());
    }
  }
  EXPECT_EQ(FakeCuda().streams, before + 2);
  ASSERT_TRUE(WaitAndReset(members_).ok());
}

TEST_F(FakeMemberTest, WithoutAccessPullsTakeADetour) {
  testing::LetFakePeersReach(false);
  testing::SetFakeDevices(4);  // one of which nobody knows anything yet
  members_.push_back(NewMember(3));
  EXPECT_FALSE(members_[0]->Reaches(*members_[2]));
  EXPECT_TRUE(members_[0]->Reaches(*members_[1]));
  EXPECT_TRUE(members_[2]->Reaches(*members_[2]));
  const int64_t detours = FakeCuda().detours_ever;
  CudaMember &first = *members_[0], &last = *members_[2];
  std::vector<std::byte> host(10'000), got(10'000);
  for (size_t i = 0; i < host.size(); ++i) host[i] = std::byte(i * 7);
  std::byte* a = last.Allocate(10'000).value();
  std::byte* b = first.Allocate(10'000).value();
  ASSERT_TRUE(
      last.Upload({.from = host.data(), .to = a, .row_bytes = 10'000}).ok());
  ASSERT_TRUE(last.Record(Queue::kUpload, 0).ok());
  ASSERT_TRUE(first.Await(Queue::kPull, last, 0).ok());
  ASSERT_TRUE(first.Pull(last, {.from = a, .to = b, .row_bytes = 5000}).ok());
  ASSERT_TRUE(first
                  .Pull(last, {.from = a + 5000,
                               .to = b + 5000,
                               .row_bytes = 40,
                               .rows = 100,
                               .from_pitch = 50,
                               .to_pitch = 45})
                  .ok());
  EXPECT_EQ(FakeCuda().detours_ever, detours + 2);
  ASSERT_TRUE(first.Record(Queue::kPull, 0).ok());
  ASSERT_TRUE(first.Await(Queue::kDownload, first, 0).ok());
  ASSERT_TRUE(
      first.Download({.from = b, .to = got.data(), .row_bytes = 10'000}).ok());
  ASSERT_TRUE(WaitAndReset(members_).ok());
  EXPECT_EQ(std::memcmp(got.data(), host.data(), 5000), 0);
  for (int row = 0; row < 100; ++row) {
    ASSERT_EQ(std::memcmp(&got[5000 + 45 * row], &host[5000 + 50 * row], 40),
              0);
  }
}

TEST_F(FakeMemberTest, RowsAreOneCopy) {
  CudaMember &first = *members_[0], &second = *members_[1];
  std::vector<std::byte> host(10'000);
  std::byte* a = first.Allocate(10'000).value();
  std::byte* b = second.Allocate(10'000).value();
  BlockCopy copy{.from = host.data(),
                 .to = a,
                 .row_bytes = 40,
                 .rows = 100,
                 .from_pitch = 50,
                 .to_pitch = 40};
  // The host's may lie over a boundary of pieces: two runs, and a row apart.
  const int64_t before = FakeCuda().copies_ever;
  ASSERT_TRUE(first.Upload(copy).ok());
  EXPECT_LE(FakeCuda().copies_ever, before + 4);
  copy.from = a;
  copy.to = b;
  const int64_t uploaded = FakeCuda().copies_ever;
  ASSERT_TRUE(second.Pull(first, copy).ok());
  EXPECT_EQ(FakeCuda().copies_ever, uploaded + 1);
  ASSERT_TRUE(WaitAndReset(members_).ok());
}

TEST_F(FakeMemberTest, SumsAreOneRowWhereNothingLiesBetweenRows) {
  CudaMember& member = *members_[0];
  auto* memory = reinterpret_cast<float*>(member.Allocate(4000).value());
  const BlockSum::Term terms[] = {{memory, 8}, {memory + 80, 8}};
  BlockSum sum{.terms = terms,
               .to = memory + 160,
               .to_pitch = 8,
               .row_elements = 8,
               .rows = 10};
  ASSERT_TRUE(member.Sum(sum).ok());
  EXPECT_EQ(kernels_.last_sum.rows, 1);
  EXPECT_EQ(kernels_.last_sum.row_elements, 80);
  EXPECT_TRUE(kernels_.last_aligned);
  sum.to_pitch = 9;
  ASSERT_TRUE(member.Sum(sum).ok());
  EXPECT_EQ(kernels_.last_sum.rows, 10);
  EXPECT_FALSE(kernels_.last_aligned);
  sum.to_pitch = 12;
  ASSERT_TRUE(member.Sum(sum).ok());
  EXPECT_TRUE(kernels_.last_aligned);
  sum.to = memory + 161;
  ASSERT_TRUE(member.Sum(sum).ok());
  EXPECT_FALSE(kernels_.last_aligned);
  ASSERT_TRUE(member.Wait().ok());
}

TEST_F(FakeMemberTest, SumsOfTooManyTermsAreRefused) {
  const std::vector<BlockSum::Term> terms(BlockSum::kMostTerms + 1);
  float to = 0;
  EXPECT_FALSE(
      members_[0]
          ->Sum({.terms = terms, .to = &to, .row_elements = 1, .rows = 1})
          .ok());
}

TEST_F(FakeMemberTest, MergesSayWhetherAllRowsAreAligned) {
  CudaMember& member = *members_[0];
  auto* memory = reinterpret_cast<float*>(member.Allocate(40'000).value());
  RowState terms[2];
  for (int t = 0; t < 2; ++t) {
    terms[t].o = {memory + 1000 * t, DType::kF32, 0, 80, 8};
    terms[t].lse = {memory + 2000 + 100 * t, 0, 5};
  }
  RowMerges merges;
  merges.terms = terms;
  merges.o = {memory + 3000, DType::kF32, 0, 8, 80};
  merges.lse = {memory + 4000, 0, 5};
  merges.rows = 5;
  merges.heads = 10;
  merges.dim = 7;
  ASSERT_TRUE(member.Merge(merges).ok());
  const MergeParams& last = kernels_.last_merge;
  EXPECT_EQ(last.num_terms, 2);
  EXPECT_EQ(last.terms[1].o, memory + 1000);
  EXPECT_EQ(last.terms[1].lse, memory + 2100);
  EXPECT_EQ(last.rows * last.heads, 50);
  EXPECT_EQ(last.dim, 7);
  EXPECT_TRUE(kernels_.last_aligned);
  terms[1].o.token_stride = 81;
  ASSERT_TRUE(member.Merge(merges).ok());
  EXPECT_FALSE(kernels_.last_aligned);
  terms[1].o.token_stride = 80;
  merges.o.dtype = DType::kBF16;  // rows of 20 bytes
  merges.o.token_stride = 10;
  ASSERT_TRUE(member.Merge(merges).ok());
  EXPECT_FALSE(kernels_.last_aligned);
  merges.o.token_stride = 16;
  ASSERT_TRUE(member.Merge(merges).ok());
  EXPECT_TRUE(kernels_.last_aligned);
  // LSE alone has no rows to be aligned.
  merges.o = {};
  terms[0].o = terms[1].o = {};
  ASSERT_TRUE(member.Merge(merges).ok());
  ASSERT_TRUE(member.Wait().ok());
}

}  // namespace
}  // namespace attnd::cuda
