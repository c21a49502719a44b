#include "proto/wire/grpc_bytes.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attn/v1/attention.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/proto/plain.h"

namespace attnd::wire {
namespace {

namespace v1 = ::attn::v1;
using ::testing::SizeIs;

// Memory that is overwritten, then freed, when it is released.
class Lender {
 public:
  explicit Lender(size_t bytes) : memory_(new std::string(bytes, 'm')) {}

  absl::string_view bytes() const { return *memory_; }
  int releases() const { return releases_; }
  absl::AnyInvocable<void()> release() {
    return [this] {
      ++releases_;
      if (memory_) std::fill(memory_->begin(), memory_->end(), '\xdd');
      memory_.reset();
    };
  }

 private:
  std::unique_ptr<std::string> memory_;
  std::atomic<int> releases_ = 0;
};

std::string Text(const std::vector<grpc::Slice>& slices) {
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(slice.begin(), slice.end());
  }
  return text;
}

std::string Text(const ReceivedBytes& bytes) {
  std::string text;
  for (absl::string_view f : bytes.fragments()) text.append(f.data(), f.size());
  return text;
}

std::vector<grpc::Slice> Dump(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  return slices;
}

TEST(GrpcBytes, SendsTheCallersMemoryItself) {
  Lender lender(50000);
  const grpc::ByteBuffer buffer =
      ToByteBuffer({{"head", lender.bytes()}, {"tail", {}}}, lender.release());
  const auto slices = Dump(buffer);
  ASSERT_THAT(slices, SizeIs(3));
  EXPECT_EQ(static_cast<const void*>(slices[1].begin()), lender.bytes().data());
  EXPECT_EQ(Text(slices), "head" + std::string(50000, 'm') + "tail");
}

TEST(GrpcBytes, ReleasesOnceAfterTheLastReference) {
  Lender lender(100000);
  std::vector<Piece> pieces = {{"a", lender.bytes().substr(0, 50000)},
                               {"", lender.bytes().substr(50000)}};
  auto buffer = std::make_unique<grpc::ByteBuffer>(
      ToByteBuffer(pieces, lender.release()));
  pieces.clear();
  auto copy = std::make_unique<grpc::ByteBuffer>(*buffer);
  auto slices = Dump(*buffer);
  buffer.reset();
  copy.reset();
  EXPECT_EQ(lender.releases(), 0);
  ASSERT_THAT(slices, SizeIs(3));
  for (const size_t last : {2, 1}) {
    EXPECT_EQ(lender.releases(), 0);
    slices.erase(slices.begin() + last);
  }
  EXPECT_EQ(lender.releases(), 1);
  EXPECT_EQ(Text(slices), "a");
}

TEST(GrpcBytes, ReleasesOnceWhenThreadsRaceToDrop) {
  for (int round = 0; round < 200; ++round) {
    Lender lender(8 * 3000);
    std::vector<Piece> pieces;
    for (int i = 0; i < 8; ++i) {
      pieces.push_back({"", lender.bytes().substr(i * 3000, 3000)});
    }
    std::vector<grpc::Slice> slices =
        Dump(ToByteBuffer(pieces, lender.release()));
    ASSERT_THAT(slices, SizeIs(8));
    const std::string expected(4 * 3000, 'm');
    const auto drop = [&](std::vector<grpc::Slice> half) {
      EXPECT_EQ(Text(half), expected);
    };
    std::thread other(
        drop, std::vector<grpc::Slice>(slices.begin(), slices.begin() + 4));
    std::vector<grpc::Slice> mine(slices.begin() + 4, slices.end());
    slices.clear();
    drop(std::move(mine));
    other.join();
    EXPECT_EQ(lender.releases(), 1);
  }
}

TEST(GrpcBytes, CopiesWhatIsSmallAndReleasesAtOnce) {
  Lender lender(kCopiedMessageBytes - 2);
  const grpc::ByteBuffer buffer =
      ToByteBuffer({{"x", lender.bytes()}, {"y", {}}}, lender.release());
  EXPECT_EQ(lender.releases(), 1);
  const auto slices = Dump(buffer);
  ASSERT_THAT(slices, SizeIs(1));
  EXPECT_EQ(Text(slices),
            "x" + std::string(kCopiedMessageBytes - 2, 'm') + "y");
}

TEST(GrpcBytes, CopiesSmallPiecesOfLargeMessages) {
  Lender lender(20000);
  const absl::string_view bytes = lender.bytes();
  const auto slices =
      Dump(ToByteBuffer({{"a", bytes.substr(0, kCopiedPieceBytes)},
                         {"b", bytes.substr(0, kCopiedPieceBytes - 1)},
                         {"c", bytes}},
                        lender.release()));
  EXPECT_EQ(lender.releases(), 0);
  ASSERT_THAT(slices, SizeIs(4));
  EXPECT_EQ(slices[2].size(), kCopiedPieceBytes + 1);  // b, its piece and c
}

TEST(GrpcBytes, ReleasesWhenThereIsNothing) {
  int releases = 0;
  const grpc::ByteBuffer buffer = ToByteBuffer({}, [&] { ++releases; });
  EXPECT_EQ(releases, 1);
  EXPECT_TRUE(buffer.Valid());
  EXPECT_EQ(buffer.Length(), 0);
  ToByteBuffer({}, nullptr);
  Lender lender(20000);
  ToByteBuffer({{"", lender.bytes()}}, nullptr);  // nobody to tell
}

TEST(GrpcBytes, ReceivedBytesAreGRPCsOwn) {
  Lender lender(30000);
  grpc::ByteBuffer buffer =
      ToByteBuffer({{"short", lender.bytes()}}, lender.release());
  ReceivedBytes received(buffer);
  EXPECT_FALSE(buffer.Valid());
  ASSERT_THAT(received.fragments(), SizeIs(2));
  EXPECT_EQ(received.fragments()[1].data(), lender.bytes().data());
  EXPECT_EQ(lender.releases(), 0);

  // Views outlive a move, also of slices that hold their bytes themselves.
  const auto views = received.fragments();
  ReceivedBytes moved = std::move(received);
  EXPECT_EQ(moved.fragments().data(), views.data());
  EXPECT_EQ(Text(moved), "short" + std::string(30000, 'm'));

  moved.Release();
  EXPECT_EQ(lender.releases(), 1);
  EXPECT_THAT(moved.fragments(), SizeIs(0));
  moved.Release();
}

TEST(GrpcBytes, ABufferNeverFilledIsAnEmptyMessage) {
  grpc::ByteBuffer buffer;
  EXPECT_THAT(ReceivedBytes(buffer).fragments(), SizeIs(0));
  grpc::ByteBuffer empty = ToByteBuffer({}, nullptr);
  EXPECT_EQ(Text(ReceivedBytes(empty)), "");
}

TEST(GrpcBytes, MessagesGoThroughBothWays) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 200; ++i) {
    v1::BackwardRequest plain;
    testing::FillRandom(random, plain);
    if (i % 2) plain.mutable_k()->set_data(std::string(random() % 100000, 'k'));
    testing::Split split = testing::SplitData(plain);
    const auto pieces = Encode(*split.header, split.data);
    ASSERT_TRUE(pieces.ok());
    int releases = 0;
    grpc::ByteBuffer buffer = ToByteBuffer(*pieces, [&] {
      ++releases;
      for (std::string& s : split.storage) std::fill(s.begin(), s.end(), 0);
    });
    {
      ReceivedBytes received(buffer);
      v1::BackwardRequest header;
      std::vector<TensorData> data;
      ASSERT_TRUE(
          Decode(received.fragments(), UnknownFields::kRefuse, header, data)
              .ok());
      EXPECT_EQ(testing::JoinData(header, data)->SerializeAsString(),
                plain.SerializeAsString());
    }
    EXPECT_EQ(releases, 1);
  }
}

}  // namespace
}  // namespace attnd::wire
