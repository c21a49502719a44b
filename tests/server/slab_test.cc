#include "server/region/slab.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/server/fakes/identity_backend.h"
#include "tests/server/region_testing.h"

namespace attnd::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::unique_ptr<Slab> NewSlab(int64_t bytes, std::vector<Backend*> pinners) {
  auto slab = Slab::Create({bytes, 0, std::move(pinners)});
  EXPECT_TRUE(slab.ok()) << slab.status();
  return *std::move(slab);
}

// Filled and pinned.
std::unique_ptr<Slab> WholeSlab(int64_t bytes, IdentityBackend& device) {
  auto slab = NewSlab(bytes, {&device});
  EXPECT_EQ(slab->Fill(0, bytes), absl::OkStatus());
  for (int piece = 0; piece < slab->pieces(); ++piece) {
    EXPECT_EQ(slab->PinPiece(piece), absl::OkStatus());
  }
  return slab;
}

// What a client gets.
Descriptor Passed(const Slab& slab) {
  return Descriptor(fcntl(slab.descriptor(), F_DUPFD_CLOEXEC, 0));
}

int64_t BytesInMemory(int fd) {
  struct stat file = {};
  EXPECT_EQ(fstat(fd, &file), 0);
  return file.st_blocks * 512;
}

TEST(Slab, IsFilledInPartsAndPinnedInPieces) {
  IdentityBackend device;
  // No memory is taken for what is not filled.
  const auto slab = NewSlab(kPinnedPieceBytes + 2 * kMiB, {&device});
  EXPECT_EQ(
      reinterpret_cast<uintptr_t>(slab->memory().data()) % kPinnedPieceBytes,
      0);
  EXPECT_EQ(slab->pieces(), 2);
  EXPECT_EQ(slab->PieceBytes(0), kPinnedPieceBytes);
  EXPECT_EQ(slab->PieceBytes(1), 2 * kMiB);
  EXPECT_EQ(BytesInMemory(slab->descriptor()), 0);
  EXPECT_EQ(slab->Fill(slab->PieceOffset(1), kMiB), absl::OkStatus());
  EXPECT_EQ(slab->Fill(slab->PieceOffset(1) + kMiB, kMiB), absl::OkStatus());
  EXPECT_EQ(BytesInMemory(slab->descriptor()), 2 * kMiB);
  EXPECT_EQ(slab->PinPiece(1), absl::OkStatus());
  EXPECT_EQ(device.pinned_bytes(), 2 * kMiB);
}

TEST(Slab, IsSharedAndZeroAtFirst) {
  IdentityBackend device;
  const auto slab = WholeSlab(2 * kMiB, device);
  const Descriptor passed = Passed(*slab);
  EXPECT_EQ(fcntl(slab->descriptor(), F_GETFD), FD_CLOEXEC);
  const TestMapping client(passed.get(), 2 * kMiB);
  EXPECT_TRUE(client.IsAll(0));
  client.data()[kMiB] = std::byte{7};
  EXPECT_EQ(slab->memory()[kMiB], std::byte{7});
}

TEST(Slab, CannotBeCutOrGrownOrSealed) {
  IdentityBackend device;
  const auto slab = WholeSlab(2 * kMiB, device);
  const Descriptor passed = Passed(*slab);
  for (const int64_t bytes : {int64_t{0}, kMiB, 3 * kMiB}) {
    EXPECT_EQ(ftruncate(passed.get(), bytes), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fallocate(passed.get(), FALLOC_FL_KEEP_SIZE, 0, 3 * kMiB), -1);
  EXPECT_EQ(errno, EPERM);
  // A client that seals it against writing would break the server's results.
  EXPECT_EQ(fcntl(passed.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Slab, AHoleThatAClientPunchesReadsAsZeros) {
  IdentityBackend device;
  const auto slab = WholeSlab(2 * kMiB, device);
  std::memset(slab->memory().data(), 5, 2 * kMiB);
  const Descriptor passed = Passed(*slab);
  ASSERT_EQ(fallocate(passed.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      0, kMiB),
            0);
  EXPECT_EQ(slab->memory()[0], std::byte{0});
  EXPECT_EQ(slab->memory()[kMiB], std::byte{5});
  slab->memory()[0] = std::byte{6};
  const TestMapping client(passed.get(), 2 * kMiB);
  EXPECT_EQ(client.data()[0], std::byte{6});
}

TEST(Slab, GivesItsMemoryBackThoughAClientKeepsIt) {
  IdentityBackend device;
  auto slab = WholeSlab(2 * kMiB, device);
  const Descriptor passed = Passed(*slab);
  TestMapping client(passed.get(), 2 * kMiB);
  client.Fill(9);
  EXPECT_EQ(BytesInMemory(passed.get()), 2 * kMiB);
  slab->Retire();
  EXPECT_TRUE(slab->memory().empty());
  EXPECT_EQ(device.pinned_bytes(), 0);
  EXPECT_EQ(BytesInMemory(passed.get()), 0);
  EXPECT_TRUE(client.IsAll(0));
  slab->Retire();
  EXPECT_EQ(device.pinned_bytes(), 0);
}

TEST(Slab, IsPinnedForAllKindsOrNone) {
  IdentityBackend one, other;
  const auto slab = NewSlab(2 * kMiB, {&one, &other});
  EXPECT_EQ(slab->Fill(0, 2 * kMiB), absl::OkStatus());
  other.set_pin_error(absl::ResourceExhaustedError("no more"));
  EXPECT_TRUE(absl::IsResourceExhausted(slab->PinPiece(0)));
  EXPECT_EQ(one.pinned_bytes(), 0);
  slab->Retire();
  EXPECT_EQ(one.pinned_bytes(), 0);
  EXPECT_EQ(other.pinned_bytes(), 0);
}

TEST(Slab, LeavesNoDescriptor) {
  IdentityBackend device;
  const int before = OpenDescriptors();
  auto slab = WholeSlab(2 * kMiB, device);
  EXPECT_EQ(OpenDescriptors(), before + 1);
  slab = nullptr;
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(device.pinned_bytes(), 0);
}

}  // namespace
}  // namespace attnd::server
