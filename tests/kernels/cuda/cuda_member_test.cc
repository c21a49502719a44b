// What members of a team do beside arithmetic. Runs on GPUs, and everywhere
// against fake_runtime.h, which copies as late as it may and refuses what
// reaches from one piece of pinned memory into the next.

#include "kernels/cuda/cuda_member.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/pinning.h"
#include "tests/kernels/cuda/shared_pages.h"

namespace attnd::cuda {
namespace {

using testing::FillRandomly;
using testing::Same;
using testing::SharedPages;
using Queue = MemberStream::Queue;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kPiece = kPinnedPieceBytes;

// A block of rows within memory of its own, gaps around it included.
struct Block {
  int64_t first = 0;  // bytes before the first row
  int64_t row_bytes = 0, rows = 0, pitch = 0;

  int64_t end() const { return first + (rows - 1) * pitch + row_bytes; }
};

BlockCopy CopyOf(const std::byte* from, const Block& there, std::byte* to,
                 const Block& here) {
  return {.from = from + there.first,
          .to = to + here.first,
          .row_bytes = here.row_bytes,
          .rows = here.rows,
          .from_pitch = there.pitch,
          .to_pitch = here.pitch};
}

// The same at once, in host memory.
void CopyNow(const BlockCopy& copy) {
  for (int64_t row = 0; row < copy.rows; ++row) {
    std::memcpy(copy.to + row * copy.to_pitch,
                copy.from + row * copy.from_pitch, copy.row_bytes);
  }
}

class CudaMemberTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 2 * kPiece + kMiB;

  void SetUp() override {
    const auto usable = UsableDevices();
    if (!usable.ok()) GTEST_SKIP() << "no GPU here: " << usable.status();
    if (usable->empty()) GTEST_SKIP() << "no GPU that is recent enough here";
    devices_ = *usable;
    for (int device : devices_) members_.push_back(NewMember(device));
    pages_ = std::make_unique<SharedPages>(kBytes);
    for (HostSpan piece : pages_->pieces()) {
      ASSERT_TRUE(PinMemory(devices_[0], piece).ok());
      pinned_.push_back(piece);
    }
  }
  void TearDown() override {
    members_.clear();
    for (HostSpan piece : pinned_) UnpinMemory(devices_[0], piece);
  }

  static std::unique_ptr<CudaMember> NewMember(int device) {
    auto member = CudaMember::Create(device, DescribeGpu(device).value());
    EXPECT_TRUE(member.ok()) << member.status();
    return *std::move(member);
  }

  // Of all members, as a team does it.
  void WaitAndReset() {
    for (auto& member : members_) {
      const auto times = member->Wait();
      ASSERT_TRUE(times.ok()) << times.status();
    }
    for (auto& member : members_) member->Reset();
  }

  // Queue `later` of `member` goes on after `earlier` of `of`.
  static void Order(MemberStream& of, Queue earlier, MemberStream& member,
                    Queue later, int point) {
    ASSERT_TRUE(of.Record(earlier, point).ok());
    ASSERT_TRUE(member.Await(later, of, point).ok());
  }

  std::byte* host() const { return pages_->all().data(); }

  std::vector<int> devices_;
  std::vector<std::unique_ptr<CudaMember>> members_;
  std::unique_ptr<SharedPages> pages_;
  std::vector<HostSpan> pinned_;
};

// Blocks that begin, end and cross where pieces of pinned memory do, with gaps
// of any size, none too.
std::vector<std::pair<Block, Block>> Blocks(int64_t most_bytes) {
  std::vector<std::pair<Block, Block>> blocks;
  std::mt19937 random(7);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
  };
  for (int64_t row_bytes : {1, 3, 16, 250, 4096, 70'001}) {
    for (int64_t host_gap : {0, 1, 48, 100'000}) {
      for (int64_t device_gap : {0, 13, 512}) {
        const int64_t pitch = row_bytes + host_gap;
        const int64_t rows =
            1 + below(std::clamp<int64_t>(most_bytes / pitch, 1, 300));
        Block host{.row_bytes = row_bytes, .rows = rows, .pitch = pitch};
        Block device{below(100), row_bytes, rows, row_bytes + device_gap};
        // The block's middle is about where the second piece begins.
        host.first = std::max<int64_t>(0, kPiece - host.end() / 2 - below(99));
        blocks.push_back({host, device});
      }
    }
  }
  // Three pieces; one run of bytes; rows that lie nowhere else than the first.
  blocks.push_back({{10, 4096, 3000, 11'000}, {0, 4096, 3000, 4096}});
  blocks.push_back({{5, 2 * kPiece, 1, 0}, {0, 2 * kPiece, 1, 0}});
  blocks.push_back({{kPiece - 50, 100, 1, 0}, {0, 100, 1, 0}});
  blocks.push_back({{0, 0, 5, 64}, {0, 0, 5, 64}});
  return blocks;
}

TEST_F(CudaMemberTest, UploadsRowsOverBoundariesOfPieces) {
  FillRandomly(1, pages_->all());
  CudaMember& member = *members_[0];
  for (const auto& [there, here] : Blocks(12 * kMiB)) {
    const int64_t bytes = here.end() + 100;
    std::vector<std::byte> poison(bytes, std::byte{0x5A}), got(bytes);
    std::byte* device = member.Allocate(bytes).value();
    ASSERT_TRUE(
        member.Upload({.from = poison.data(), .to = device, .row_bytes = bytes})
            .ok());
    ASSERT_TRUE(member.Upload(CopyOf(host(), there, device, here)).ok());
    Order(member, Queue::kUpload, member, Queue::kDownload, 0);
    ASSERT_TRUE(
        member.Download({.from = device, .to = got.data(), .row_bytes = bytes})
            .ok());
    WaitAndReset();
    CopyNow(CopyOf(host(), there, poison.data(), here));
    ASSERT_TRUE(Same(got, poison)) << here.row_bytes << " x " << here.rows
                                   << ", " << there.pitch << " apart";
  }
}

TEST_F(CudaMemberTest, DownloadsRowsOverBoundariesAndNowhereElse) {
  CudaMember& member = *members_[0];
  std::vector<std::byte> sent(kBytes), expected(kBytes);
  FillRandomly(2, HostSpan(sent));
  for (const auto& [here, there] : Blocks(12 * kMiB)) {
    const int64_t bytes = there.end() + 100;
    std::byte* device = member.Allocate(bytes).value();
    ASSERT_TRUE(
        member.Upload({.from = sent.data(), .to = device, .row_bytes = bytes})
            .ok());
    Order(member, Queue::kUpload, member, Queue::kDownload, 0);
    const int64_t first = std::max<int64_t>(here.first - 4096, 0);
    const int64_t end = std::min(here.end() + 4096, kBytes);
    std::fill(host() + first, host() + end, std::byte{0x5A});
    std::fill(expected.begin() + first, expected.begin() + end,
              std::byte{0x5A});
    ASSERT_TRUE(member.Download(CopyOf(device, there, host(), here)).ok());
    WaitAndReset();
    CopyNow(CopyOf(sent.data(), there, expected.data(), here));
    ASSERT_TRUE(
        std::equal(host() + first, host() + end, expected.begin() + first))
        << here.row_bytes << " x " << here.rows << ", " << here.pitch
        << " apart";
  }
}

// Uploads to one member, pulls it to another over poison, and downloads that.
TEST_F(CudaMemberTest, PullsRowsFromEveryDevice) {
  const std::vector<std::pair<Block, Block>> blocks = Blocks(2 * kMiB);
  FillRandomly(3, pages_->all());
  for (size_t from = 0; from < members_.size(); ++from) {
    CudaMember& source = *members_[from];
    CudaMember& target = *members_[from == 0 ? members_.size() - 1 : 0];
    for (auto [there, here] : blocks) {
      there.first %= 1000;
      const int64_t bytes = here.end() + 100;
      std::vector<std::byte> expected(bytes, std::byte{0x5A}), got(bytes);
      std::byte* a = source.Allocate(there.end()).value();
      std::byte* b = target.Allocate(bytes).value();
      ASSERT_TRUE(
          source.Upload({.from = host(), .to = a, .row_bytes = there.end()})
              .ok());
      ASSERT_TRUE(
          target.Upload({.from = expected.data(), .to = b, .row_bytes = bytes})
              .ok());
      Order(source, Queue::kUpload, target, Queue::kPull, 0);
      Order(target, Queue::kUpload, target, Queue::kPull, 1);
      ASSERT_TRUE(target.Pull(source, CopyOf(a, there, b, here)).ok());
      Order(target, Queue::kPull, target, Queue::kDownload, 2);
      ASSERT_TRUE(
          target.Download({.from = b, .to = got.data(), .row_bytes = bytes})
              .ok());
      WaitAndReset();
      CopyNow(CopyOf(host(), there, expected.data(), here));
      ASSERT_TRUE(Same(got, expected))
          << "from " << from << ": " << here.row_bytes << " x " << here.rows;
    }
  }
}

TEST_F(CudaMemberTest, RowsMayBePulledWithinADevice) {
  CudaMember& member = *members_[0];
  const auto other = NewMember(devices_[0]);
  FillRandomly(4, pages_->all());
  std::byte* a = other->Allocate(10'000).value();
  std::byte* b = member.Allocate(10'000).value();
  std::vector<std::byte> got(100 * 30);
  ASSERT_TRUE(
      other->Upload({.from = host(), .to = a, .row_bytes = 10'000}).ok());
  Order(*other, Queue::kUpload, member, Queue::kPull, 0);
  ASSERT_TRUE(member.Reaches(*other));
  ASSERT_TRUE(member.Reaches(member));
  ASSERT_TRUE(member
                  .Pull(*other, {.from = a + 7,
                                 .to = b,
                                 .row_bytes = 30,
                                 .rows = 100,
                                 .from_pitch = 90,
                                 .to_pitch = 30})
                  .ok());
  Order(member, Queue::kPull, member, Queue::kDownload, 0);
  ASSERT_TRUE(
      member.Download({.from = b, .to = got.data(), .row_bytes = 3000}).ok());
  ASSERT_TRUE(other->Wait().ok());
  WaitAndReset();
  for (int row = 0; row < 100; ++row) {
    ASSERT_EQ(std::memcmp(&got[30 * row], host() + 7 + 90 * row, 30), 0) << row;
  }
}

// As of a bias that is the same for all heads.
TEST_F(CudaMemberTest, RowsMayLieOverEachOtherWhereTheyComeFrom) {
  CudaMember &first = *members_.front(), &last = *members_.back();
  FillRandomly(12, pages_->all().subspan(0, 1024));
  std::byte* a = first.Allocate(500).value();
  std::byte* b = last.Allocate(600).value();
  std::vector<std::byte> got(600);
  ASSERT_TRUE(first
                  .Upload({.from = host(),
                           .to = a,
                           .row_bytes = 100,
                           .rows = 5,
                           .from_pitch = 0,
                           .to_pitch = 100})
                  .ok());
  Order(first, Queue::kUpload, last, Queue::kPull, 0);
  ASSERT_TRUE(last.Pull(first, {.from = a,
                                .to = b,
                                .row_bytes = 300,
                                .rows = 2,
                                .from_pitch = 30,
                                .to_pitch = 300})
                  .ok());
  Order(last, Queue::kPull, last, Queue::kDownload, 1);
  ASSERT_TRUE(
      last.Download({.from = b, .to = got.data(), .row_bytes = 600}).ok());
  WaitAndReset();
  for (int i = 0; i < 600; ++i) {
    ASSERT_EQ(got[i], host()[(i / 300 * 30 + i % 300) % 100]) << i;
  }
}

// Batch after batch through the same memory of two devices, with nothing but
// points between the copies: each reads what the one before wrote, and no copy
// overwrites what another has yet to read. What is awaited comes long after it
// was enqueued, behind a large copy.
TEST_F(CudaMemberTest, PointsOrderTwoDevices) {
  if (members_.size() < 2) GTEST_SKIP() << "needs two GPUs";
  constexpr int kBatches = 20, kTurns = 10;
  constexpr int64_t kMost = 200'000, kFiller = 4 * kMiB;
  CudaMember &first = *members_[0], &second = *members_[1];
  std::mt19937 random(5);
  for (int batch = 0; batch < kBatches; ++batch) {
    FillRandomly(batch, pages_->all().subspan(0, kTurns * kMost + 8));
    std::byte* filler = first.Allocate(kFiller).value();
    std::byte* a = first.Allocate(kMost).value();
    std::byte* b = second.Allocate(kMost).value();
    std::byte* got = host() + kPiece;
    std::vector<int64_t> sizes;
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t bytes = 1 + random() % kMost;
      sizes.push_back(bytes);
      ASSERT_TRUE(
          first.Upload({.from = host(), .to = filler, .row_bytes = kFiller})
              .ok());
      ASSERT_TRUE(
          first
              .Upload(
                  {.from = host() + turn * kMost, .to = a, .row_bytes = bytes})
              .ok());
      Order(first, Queue::kUpload, second, Queue::kPull, turn);
      ASSERT_TRUE(
          second.Pull(first, {.from = a, .to = b, .row_bytes = bytes}).ok());
      // The next upload goes to where this has been pulled from.
      Order(second, Queue::kPull, first, Queue::kUpload, 2 * turn);
      ASSERT_TRUE(second.Await(Queue::kDownload, second, 2 * turn).ok());
      ASSERT_TRUE(
          second
              .Download(
                  {.from = b, .to = got + turn * kMost, .row_bytes = bytes})
              .ok());
      Order(second, Queue::kDownload, second, Queue::kPull, 2 * turn + 1);
    }
    WaitAndReset();
    for (int turn = 0; turn < kTurns; ++turn) {
      ASSERT_EQ(
          std::memcmp(host() + turn * kMost, got + turn * kMost, sizes[turn]),
          0)
          << "turn " << turn << " of batch " << batch;
    }
  }
}

// Around all devices and back, twice.
TEST_F(CudaMemberTest, PullsGoAroundARing) {
  constexpr int64_t kRow = 300'000;
  const int n = static_cast<int>(members_.size());
  FillRandomly(6, pages_->all().subspan(0, kRow));
  std::vector<std::byte*> slots[2];
  for (auto& member : members_) {
    for (auto& slot : slots) slot.push_back(member->Allocate(kRow).value());
  }
  ASSERT_TRUE(
      members_[0]
          ->Upload({.from = host(), .to = slots[0][0], .row_bytes = kRow})
          .ok());
  ASSERT_TRUE(members_[0]->Record(Queue::kUpload, 1000).ok());
  for (int step = 0; step < 2 * n; ++step) {
    CudaMember& from = *members_[step % n];
    CudaMember& to = *members_[(step + 1) % n];
    ASSERT_TRUE(to.Await(Queue::kPull, from, 1000 + step).ok());
    ASSERT_TRUE(to.Pull(from, {.from = slots[step % 2][step % n],
                               .to = slots[(step + 1) % 2][(step + 1) % n],
                               .row_bytes = kRow})
                    .ok());
    ASSERT_TRUE(to.Record(Queue::kPull, 1001 + step).ok());
  }
  CudaMember& last = *members_[0];
  ASSERT_TRUE(last.Await(Queue::kDownload, last, 1000 + 2 * n).ok());
  std::byte* got = host() + kPiece;
  ASSERT_TRUE(
      last.Download({.from = slots[0][0], .to = got, .row_bytes = kRow}).ok());
  WaitAndReset();
  EXPECT_EQ(std::memcmp(host(), got, kRow), 0);
}

// One thread records while another awaits what it has recorded before.
TEST_F(CudaMemberTest, PointsMayBeAwaitedByAnotherThread) {
  if (members_.size() < 2) GTEST_SKIP() << "needs two GPUs";
  constexpr int kTurns = 200;
  constexpr int64_t kRow = 5000;
  CudaMember &first = *members_[0], &second = *members_[1];
  FillRandomly(8, pages_->all().subspan(0, kTurns * kRow));
  std::byte* a = first.Allocate(kTurns * kRow).value();
  std::byte* b = second.Allocate(kTurns * kRow).value();
  std::byte* got = host() + kPiece;
  std::atomic<int> recorded = 0;
  std::thread uploader([&] {
    for (int turn = 0; turn < kTurns; ++turn) {
      EXPECT_TRUE(first
                      .Upload({.from = host() + turn * kRow,
                               .to = a + turn * kRow,
                               .row_bytes = kRow})
                      .ok());
      EXPECT_TRUE(first.Record(Queue::kUpload, turn).ok());
      recorded.store(turn + 1, std::memory_order_release);
      recorded.notify_one();
    }
  });
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int n; (n = recorded.load(std::memory_order_acquire)) <= turn;) {
      recorded.wait(n);
    }
    EXPECT_TRUE(second.Await(Queue::kPull, first, turn).ok());
    EXPECT_TRUE(second
                    .Pull(first, {.from = a + turn * kRow,
                                  .to = b + turn * kRow,
                                  .row_bytes = kRow})
                    .ok());
    Order(second, Queue::kPull, second, Queue::kDownload, turn);
    EXPECT_TRUE(second
                    .Download({.from = b + turn * kRow,
                               .to = got + turn * kRow,
                               .row_bytes = kRow})
                    .ok());
  }
  uploader.join();
  WaitAndReset();
  EXPECT_EQ(std::memcmp(host(), got, kTurns * kRow), 0);
}

TEST_F(CudaMemberTest, NoMemoryIsResourceExhaustedAndTheMemberGoesOn) {
  CudaMember& member = *members_[0];
  FillRandomly(9, pages_->all().subspan(0, 1000));
  for (int64_t bytes : {int64_t{1} << 40, int64_t{1} << 45, int64_t{1} << 62}) {
    EXPECT_EQ(member.Allocate(bytes).status().code(),
              absl::StatusCode::kResourceExhausted);
    std::byte* device = member.Allocate(1000).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(device) % kTensorAlignment, 0);
    ASSERT_TRUE(
        member.Upload({.from = host(), .to = device, .row_bytes = 1000}).ok());
    Order(member, Queue::kUpload, member, Queue::kDownload, 0);
    ASSERT_TRUE(
        member
            .Download({.from = device, .to = host() + 1000, .row_bytes = 1000})
            .ok());
    WaitAndReset();
    EXPECT_EQ(std::memcmp(host(), host() + 1000, 1000), 0);
  }
}

TEST_F(CudaMemberTest, PointsOfNothingAreNoError) {
  CudaMember& member = *members_[0];
  for (Queue queue :
       {Queue::kUpload, Queue::kPull, Queue::kCompute, Queue::kDownload}) {
    ASSERT_TRUE(member.Record(queue, static_cast<int>(queue)).ok());
    for (Queue of : {Queue::kUpload, Queue::kCompute}) {
      ASSERT_TRUE(member.Record(of, 100 + static_cast<int>(queue)).ok());
      ASSERT_TRUE(
          member.Await(queue, member, 100 + static_cast<int>(queue)).ok());
    }
  }
  EXPECT_EQ(member.Await(Queue::kPull, member, 77).code(),
            absl::StatusCode::kInternal);
  const PhaseTimes times = member.Wait().value();
  EXPECT_EQ(times.upload, absl::ZeroDuration());
  EXPECT_EQ(times.compute, absl::ZeroDuration());
  EXPECT_EQ(times.download, absl::ZeroDuration());
  WaitAndReset();
  WaitAndReset();
}

TEST_F(CudaMemberTest, TimesAreOfTheQueues) {
  CudaMember& member = *members_[0];
  std::byte* device = member.Allocate(kMiB).value();
  for (int batch = 0; batch < 2; ++batch) {
    ASSERT_TRUE(
        member.Upload({.from = host(), .to = device, .row_bytes = kMiB}).ok());
    const PhaseTimes up = member.Wait().value();
    EXPECT_GT(up.upload, absl::ZeroDuration());
    EXPECT_EQ(up.download, absl::ZeroDuration());
    ASSERT_TRUE(
        member.Download({.from = device, .to = host(), .row_bytes = kMiB})
            .ok());
    const PhaseTimes down = member.Wait().value();
    EXPECT_EQ(down.upload, absl::ZeroDuration());
    EXPECT_GT(down.download, absl::ZeroDuration());
    EXPECT_EQ(down.compute, absl::ZeroDuration());
  }
}

TEST_F(CudaMemberTest, MayGoWithWorkUnderWay) {
  const auto member = NewMember(devices_[0]);
  FillRandomly(10, pages_->all().subspan(0, 12 * kMiB));
  auto going = NewMember(devices_[0]);
  std::byte* device = going->Allocate(12 * kMiB).value();
  ASSERT_TRUE(
      going->Upload({.from = host(), .to = device, .row_bytes = 12 * kMiB})
          .ok());
  Order(*going, Queue::kUpload, *going, Queue::kDownload, 0);
  std::byte* got = host() + kPiece;
  ASSERT_TRUE(
      going->Download({.from = device, .to = got, .row_bytes = 12 * kMiB})
          .ok());
  going = nullptr;
  EXPECT_EQ(std::memcmp(host(), got, 12 * kMiB), 0);
}

}  // namespace
}  // namespace attnd::cuda
