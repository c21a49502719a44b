// A request's whole way through members, and what fails on it.

#include "tests/kernels/cuda/fake_member.h"

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_member.h"
#include "kernels/cuda/device/status.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd::cuda {
namespace {

using testing::FakeCuda;
using testing::FakeCudaUse;
using testing::FakeMemberTest;
using testing::kMiB;
using Queue = MemberStream::Queue;

constexpr int64_t kFloats = 1000;
constexpr int64_t kRowBytes = kFloats * 4;

// A request as plans have it: member 0 gets floats, the others pull them by
// rows, add them to what they have, and give back the sum of both, which member
// 0 adds up and hands out.
class Exchange {
 public:
  explicit Exchange(int members)
      : members_(members), in_(kFloats), out_(kFloats) {
    for (int i = 0; i < kFloats; ++i) in_[i] = static_cast<float>(i);
  }

  absl::Status Run(const std::vector<std::unique_ptr<CudaMember>>& members) {
    absl::Status status;
    const auto done = [&](absl::Status next) {
      status = std::move(next);
      return status.ok();
    };
    std::vector<std::byte*> a(members_), b(members_), sums(members_);
    for (int i = 0; i < members_; ++i) {
      for (std::vector<std::byte*>* of : {&a, &b, &sums}) {
        const auto memory = members[i]->Allocate(kRowBytes);
        if (!memory.ok()) return memory.status();
        (*of)[i] = *memory;
      }
      if (!done(members[i]->Upload(Run(in_.data(), a[i])))) return status;
      if (!done(members[i]->Record(Queue::kUpload, 0))) return status;
    }
    for (int i = 0; i < members_; ++i) {
      CudaMember &member = *members[i], &next = *members[(i + 1) % members_];
      if (!done(member.Await(Queue::kPull, next, 0))) return status;
      if (!done(member.Pull(next, Rows(a[(i + 1) % members_], b[i])))) {
        return status;
      }
      if (!done(member.Record(Queue::kPull, 1))) return status;
      if (!done(member.Await(Queue::kCompute, member, 0))) return status;
      if (!done(member.Await(Queue::kCompute, member, 1))) return status;
      if (!done(member.Forward({}, {}))) return status;
      if (!done(member.Backward({}, {}))) return status;
      if (!done(Sum(member, {a[i], b[i]}, sums[i]))) return status;
      if (!done(member.Record(Queue::kCompute, 2))) return status;
    }
    CudaMember& first = *members[0];
    std::vector<std::byte*> parts = {sums[0]};
    for (int i = 1; i < members_; ++i) {
      const auto part = first.Allocate(kRowBytes);
      if (!part.ok()) return part.status();
      parts.push_back(*part);
      if (!done(first.Await(Queue::kPull, *members[i], 2))) return status;
      if (!done(first.Pull(*members[i], Run(sums[i], *part)))) return status;
    }
    if (!done(first.Record(Queue::kPull, 3))) return status;
    if (!done(first.Await(Queue::kCompute, first, 3))) return status;
    if (!done(Sum(first, parts, b[0]))) return status;
    if (!done(first.Record(Queue::kCompute, 4))) return status;
    if (!done(first.Await(Queue::kDownload, first, 4))) return status;
    return first.Download(Run(b[0], out_.data()));
  }

  bool IsRight() const {
    for (int i = 0; i < kFloats; ++i) {
      if (out_[i] != static_cast<float>(2 * members_ * i)) return false;
    }
    return true;
  }

 private:
  static BlockCopy Run(const void* from, void* to) {
    return {.from = static_cast<const std::byte*>(from),
            .to = static_cast<std::byte*>(to),
            .row_bytes = kRowBytes};
  }
  // In rows of 200 bytes, each pair of which changes places: no run.
  static BlockCopy Rows(const std::byte* from, std::byte* to) {
    return {.from = from,
            .to = to,
            .row_bytes = 200,
            .rows = kRowBytes / 200,
            .from_pitch = 200,
            .to_pitch = 200};
  }
  static absl::Status Sum(CudaMember& member,
                          const std::vector<std::byte*>& terms, std::byte* to) {
    std::vector<BlockSum::Term> of;
    for (std::byte* term : terms) {
      of.push_back({reinterpret_cast<const float*>(term), kFloats});
    }
    return member.Sum({.terms = of,
                       .to = to,
                       .to_pitch = kFloats,
                       .row_elements = kFloats,
                       .rows = 1});
  }

  const int members_;
  std::vector<float> in_, out_;
};

TEST_F(FakeMemberTest, AnExchangeIsRightHoweverLateEverythingIs) {
  members_.push_back(NewMember(2));
  for (int batch = 0; batch < 3; ++batch) {
    Exchange exchange(3);
    ASSERT_TRUE(exchange.Run(members_).ok());
    ASSERT_TRUE(WaitAndReset(members_).ok());
    EXPECT_TRUE(exchange.IsRight());
  }
  // Memory was there for whoever used it.
  EXPECT_EQ(FakeCuda().early_copies, before_.early_copies);
  members_.clear();
  ExpectNothingHeld();
}

TEST_F(FakeMemberTest, AWarmMemberMakesNothing) {
  FakeCudaUse warm;
  for (int batch = 0; batch < 4; ++batch) {
    Exchange exchange(2);
    ASSERT_TRUE(exchange.Run(members_).ok());
    ASSERT_TRUE(WaitAndReset(members_).ok());
    if (batch == 0) warm = FakeCuda();
  }
  const FakeCudaUse now = FakeCuda();
  EXPECT_EQ(now.events_ever, warm.events_ever);
  EXPECT_EQ(now.streams, warm.streams);
  EXPECT_EQ(now.pinned_blocks_ever, warm.pinned_blocks_ever);
}

TEST_F(FakeMemberTest, MemoryGoesWithReset) {
  const int64_t before = FakeCuda().device_bytes;
  ASSERT_TRUE(members_[0]->Allocate(50 * kMiB).ok());
  ASSERT_TRUE(members_[0]->Wait().ok());
  EXPECT_GE(FakeCuda().device_bytes, before + 50 * kMiB);
  members_[0]->Reset();
  ASSERT_TRUE(members_[0]->Allocate(1).ok());
  ASSERT_TRUE(members_[0]->Wait().ok());  // the stream comes to it
  EXPECT_LE(FakeCuda().device_bytes, before + 2 * kMiB);
}

// Of calls that may fail each in turn does.
TEST_F(FakeMemberTest, EveryFailureIsToldAndLeavesNothingBehind) {
  {
    Exchange warm(3);  // asks for peers, which is remembered
    members_.push_back(NewMember(2));
    ASSERT_TRUE(warm.Run(members_).ok());
    ASSERT_TRUE(WaitAndReset(members_).ok());
    members_.clear();
  }
  for (cudaError_t error : {cudaErrorInvalidValue, cudaErrorMemoryAllocation}) {
    int failures = 0, exhausted = 0;
    for (int64_t calls = 0; failures == calls; ++calls) {
      testing::FailFakeCall(calls, error);
      absl::Status status;
      Exchange exchange(3);
      {
        std::vector<std::unique_ptr<CudaMember>> members;
        for (int device : {0, 1, 2}) {
          auto member = CudaMember::Create(device, Gpu());
          status.Update(member.status());
          if (member.ok()) members.push_back(*std::move(member));
        }
        if (status.ok()) status = exchange.Run(members);
        const absl::Status waited = WaitAndReset(members);
        status.Update(waited);
        if (testing::FakeCallHasFailed()) ++failures;
      }
      testing::FailFakeCall(-1, cudaSuccess);
      if (status.ok()) {
        EXPECT_TRUE(exchange.IsRight()) << calls;
      } else if (absl::IsResourceExhausted(status)) {
        EXPECT_EQ(error, cudaErrorMemoryAllocation) << status;
        ++exhausted;
      } else {
        EXPECT_TRUE(absl::IsInternal(status)) << status;
      }
      ExpectNothingHeld();
    }
    EXPECT_GT(failures, 100);
    EXPECT_EQ(exhausted > 0, error == cudaErrorMemoryAllocation);
  }
}

TEST_F(FakeMemberTest, AFaultIsInternalEverywhereFromThenOn) {
  kernels_.faults = true;
  CudaMember& member = *members_[0];
  std::vector<float> host(kFloats);
  const auto memory = member.Allocate(kRowBytes);
  ASSERT_TRUE(memory.ok());
  const BlockCopy copy{.from = reinterpret_cast<std::byte*>(host.data()),
                       .to = *memory,
                       .row_bytes = kRowBytes};
  ASSERT_TRUE(member.Forward({}, {}).ok());
  EXPECT_EQ(member.Wait().status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(member.Allocate(1).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(member.Upload(copy).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(member.Pull(*members_[1], copy).code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(member.Forward({}, {}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(member.Backward({}, {}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(member.Sum({}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(member.Merge({}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(member.Record(Queue::kPull, 0).code(), absl::StatusCode::kInternal);
  member.Reset();
  EXPECT_FALSE(CudaMember::Create(0, Gpu()).ok());
  members_.clear();
  EXPECT_EQ(FakeCuda().streams, before_.streams);
}

TEST_F(FakeMemberTest, NoMemoryIsNoFault) {
  CudaMember& member = *members_[0];
  testing::SetFakeDeviceMemory(FakeCuda().device_bytes + 5 * kMiB);
  EXPECT_EQ(member.Allocate(6 * kMiB).status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(member.Allocate(2 * kMiB).ok());
  kernels_.scratch = 4 * kMiB;
  EXPECT_EQ(member.Forward({}, {}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(member.Backward({}, {}).code(),
            absl::StatusCode::kResourceExhausted);
  kernels_.scratch = kMiB;
  EXPECT_TRUE(member.Forward({}, {}).ok());
  EXPECT_TRUE(member.Backward({}, {}).ok());
  EXPECT_TRUE(member.Wait().ok());
  EXPECT_EQ(kernels_.slices_over, 2);
}

}  // namespace
}  // namespace attnd::cuda
