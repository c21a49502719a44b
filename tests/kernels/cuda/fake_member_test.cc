// Members of a team on a runtime that fails when it is told to, and that does
// everything as late as it may.

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/cuda_member.h"
#include "kernels/cuda/device/status.h"
#include "kernels/cuda/forward.h"
#include "kernels/cuda/team/sum_kernels.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd::cuda {
namespace {

using testing::FakeCuda;
using testing::FakeCudaUse;
using Queue = MemberStream::Queue;

constexpr int64_t kMiB = int64_t{1} << 20;

// What BeginForward and BeginBackward take of a workspace, and in how many
// slices.
int64_t next_scratch = kMiB;
int next_slices = 1;
bool next_faults = false;
int slices_over = 0;
// Of the last sum that was launched.
SumParams last_sum;
bool last_aligned = false;

class FakeRest : public Rest {
 public:
  explicit FakeRest(Workspace& workspace) : workspace_(workspace) {}

  absl::Status EnqueueSlice() override {
    const auto scratch = workspace_.Scratch(next_scratch);
    if (!scratch.ok()) return scratch.status();
    if (next_faults) {
      testing::BreakFakeDevice(workspace_.stream(), cudaErrorIllegalAddress);
    }
    testing::EnqueueFake(workspace_.stream(), [] { ++slices_over; });
    ++enqueued_;
    return absl::OkStatus();
  }
  double share() const override {
    return static_cast<double>(enqueued_) / slices_;
  }

 private:
  Workspace& workspace_;
  const int slices_ = next_slices;
  int enqueued_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Rest>> BeginForward(
    absl::Span<const ForwardArgs>, Algorithm, const Gpu&, Workspace& workspace,
    const SliceOptions&) {
  return BeginRest(std::make_unique<FakeRest>(workspace));
}

absl::StatusOr<std::unique_ptr<Rest>> BeginBackward(
    absl::Span<const BackwardArgs>, const GroupOptions&, const Gpu&,
    Workspace& workspace, const SliceOptions&) {
  return BeginRest(std::make_unique<FakeRest>(workspace));
}

cudaError_t LaunchSum(const SumParams& params, DType, bool aligned,
                      cudaStream_t stream) {
  last_sum = params;
  last_aligned = aligned;
  testing::EnqueueFake(stream, [p = params] {
    auto* to = static_cast<float*>(p.to);
    for (int64_t row = 0; row < p.rows; ++row) {
      for (int64_t i = 0; i < p.row_elements; ++i) {
        float sum = 0;
        for (int t = 0; t < p.num_terms; ++t) {
          sum += p.terms[t].data[row * p.terms[t].pitch + i];
        }
        to[row * p.to_pitch + i] = sum;
      }
    }
  });
  return cudaSuccess;
}

cudaError_t LaunchDot(const DotParams&, cudaStream_t) { return cudaSuccess; }

namespace {

constexpr int64_t kFloats = 1000;
constexpr int64_t kRowBytes = kFloats * 4;

class FakeMemberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    next_scratch = kMiB;
    next_slices = 1;
    next_faults = false;
    slices_over = 0;
    before_ = FakeCuda();
    for (int device : {0, 1}) members_.push_back(NewMember(device));
  }
  void TearDown() override {
    testing::FailFakeCall(-1, cudaSuccess);
    members_.clear();
    testing::RepairFakeDevice();
    testing::LetFakePeersReach(true);
    testing::SetFakeDevices(3);
    testing::SetFakeDeviceMemory(int64_t{1} << 30);
    testing::SetFakePinnedMemory(int64_t{1} << 30);
  }

  static std::unique_ptr<CudaMember> NewMember(int device) {
    return CudaMember::Create(device, Gpu()).value();
  }
  // Waits for all, then resets all, whatever comes of it.
  static absl::Status WaitAndReset(
      const std::vector<std::unique_ptr<CudaMember>>& members) {
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

  FakeCudaUse before_;
  std::vector<std::unique_ptr<CudaMember>> members_;
};

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
  EXPECT_EQ(FakeCuda().early_copies, 0);
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
  next_faults = true;
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
  next_scratch = 4 * kMiB;
  EXPECT_EQ(member.Forward({}, {}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(member.Backward({}, {}).code(),
            absl::StatusCode::kResourceExhausted);
  next_scratch = kMiB;
  EXPECT_TRUE(member.Forward({}, {}).ok());
  EXPECT_TRUE(member.Backward({}, {}).ok());
  EXPECT_TRUE(member.Wait().ok());
  EXPECT_EQ(slices_over, 2);
}

TEST_F(FakeMemberTest, AGroupIsEnqueuedToItsEnd) {
  next_slices = 7;
  ASSERT_TRUE(members_[0]->Forward({}, {}).ok());
  EXPECT_GE(slices_over, 4);
  const PhaseTimes times = members_[0]->Wait().value();
  EXPECT_EQ(slices_over, 7);
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
  next_scratch = 300 * kMiB;
  ASSERT_TRUE(members_[0]->Forward({}, {}).ok());
  ASSERT_TRUE(WaitAndReset(members_).ok());
  next_scratch = kMiB;
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
  EXPECT_EQ(last_sum.rows, 1);
  EXPECT_EQ(last_sum.row_elements, 80);
  EXPECT_TRUE(last_aligned);
  sum.to_pitch = 9;
  ASSERT_TRUE(member.Sum(sum).ok());
  EXPECT_EQ(last_sum.rows, 10);
  EXPECT_FALSE(last_aligned);
  sum.to_pitch = 12;
  ASSERT_TRUE(member.Sum(sum).ok());
  EXPECT_TRUE(last_aligned);
  sum.to = memory + 161;
  ASSERT_TRUE(member.Sum(sum).ok());
  EXPECT_FALSE(last_aligned);
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

}  // namespace
}  // namespace attnd::cuda
