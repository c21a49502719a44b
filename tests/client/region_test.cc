// Leases, and servers that are none of ours.

#include "attnd/region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/region_socket.h"
#include "proto/wire/status.h"
#include "tests/client/region_server.h"
#include "tests/hang_limit.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 1 << 20;
constexpr absl::Duration kLong = testing::kHangLimit;

// Whatever a test does, no descriptor is left.
class RegionTest : public ::testing::Test {
 protected:
  ~RegionTest() override { EXPECT_EQ(OpenDescriptors(), before_); }

  // What a client makes of `reply`, with `descriptor` unless that is -1.
  static absl::Status LeaseWith(const std::string& reply, int descriptor) {
    RegionServer server([&](int socket, const Packet&) {
      EXPECT_TRUE(SendPacket(socket, reply, descriptor).ok());
      return true;
    });
    return Region::Lease(server.path(), kBytes, kLong).status();
  }
  // INTERNAL naming `field`.
  static void ExpectGarbled(const absl::Status& status,
                            const std::string& field) {
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    ASSERT_EQ(wire::FieldViolations(status).size(), 1) << status;
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field) << status;
  }

  const size_t before_ = OpenDescriptors();
};

TEST_F(RegionTest, LeasesSharedMemory) {
  Descriptor memory;
  RegionServer server([&](int socket, const Packet& packet) {
    v1::RegionRequest request;
    EXPECT_TRUE(request.ParseFromString(packet.bytes));
    EXPECT_EQ(request.lease().bytes(), kBytes);
    memory = MemoryOf(2 * kBytes);
    return SendPacket(socket, GoodReply(2 * kBytes).SerializeAsString(),
                      memory.get())
        .ok();
  });
  auto region = Region::Lease(server.path(), kBytes, kLong);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->bytes(), 2 * kBytes);
  EXPECT_FALSE((*region)->on_device());
  EXPECT_EQ((*region)->id(), "sixteen secret b");
  EXPECT_EQ((*region)->server_instance_id(), "instance");
  EXPECT_TRUE((*region)->status().ok());

  std::memcpy((*region)->data(), "hello", 5);
  char seen[5];
  ASSERT_EQ(pread(memory.get(), seen, 5, 0), 5);
  EXPECT_EQ(std::string(seen, 5), "hello");
  ASSERT_EQ(pwrite(memory.get(), "there", 5, 2 * kBytes - 5), 5);
  const auto* data = static_cast<const char*>((*region)->data());
  EXPECT_EQ(std::string(data + 2 * kBytes - 5, 5), "there");
  memory = Descriptor();

  region->reset();
  EXPECT_TRUE(server.LeaseEnds());
}

TEST_F(RegionTest, OutlivesItsLease) {
  RegionServer server(GrantHostMemory);
  auto region = Region::Lease(server.path(), kBytes, kLong);
  ASSERT_TRUE(region.ok()) << region.status();
  std::memset((*region)->data(), 7, kBytes);
  server.EndLeases();
  EXPECT_TRUE(absl::IsUnavailable((*region)->status()));
  EXPECT_EQ(static_cast<char*>((*region)->data())[kBytes - 1], 7);
  EXPECT_EQ((*region)->id(), "sixteen secret b");
}

TEST_F(RegionTest, AServerThatIsNotThere) {
  const auto lease = [](const std::string& path) {
    return Region::Lease(path, kBytes, kLong).status();
  };
  EXPECT_TRUE(absl::IsUnavailable(lease("/nowhere/at/all")));
  EXPECT_TRUE(absl::IsInvalidArgument(lease("")));
  EXPECT_TRUE(absl::IsInvalidArgument(lease(std::string(200, 'x'))));
  EXPECT_TRUE(absl::IsInvalidArgument(lease(std::string("/a\0b", 4))));
  std::string path;
  {
    RegionServer server(GrantHostMemory);
    path = server.path();
    const absl::Status status = Region::Lease(path, 0, kLong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_TRUE(absl::IsUnavailable(lease(path)));
}

TEST_F(RegionTest, AStreamSocketIsNoRegionSocket) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "attnd_stream_", getpid());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  const Descriptor fd(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  ASSERT_EQ(listen(fd.get(), 1), 0);
  const absl::Status status = Region::Lease(path, kBytes, kLong).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("region socket"));
  unlink(path.c_str());
}

TEST_F(RegionTest, MayNotConnect) {
  RegionServer server(GrantHostMemory);
  ASSERT_EQ(chmod(server.path().c_str(), 0), 0);
  // Root may connect to everything, unless this thread is somebody else to the
  // file system.
  constexpr uid_t kNobody = 65534;
  const int before = setfsuid(kNobody);
  const absl::Status status =
      Region::Lease(server.path(), kBytes, kLong).status();
  setfsuid(before);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

TEST_F(RegionTest, WaitsForNoReplyBeyondItsTime) {
  RegionServer silent([](int, const Packet&) { return true; });
  for (const absl::Duration timeout :
       {absl::Milliseconds(20), absl::ZeroDuration(), -absl::Seconds(1)}) {
    const absl::Status status =
        Region::Lease(silent.path(), kBytes, timeout).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  }
}

TEST_F(RegionTest, WaitsForNoRoomInTheQueueBeyondItsTime) {
  // One connection occupies the server's thread, and others its queue.
  std::promise<void> go_on;
  RegionServer server(
      [future = go_on.get_future().share()](int, const Packet&) {
        future.wait();
        return true;
      });
  std::vector<absl::Status> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(
        Region::Lease(server.path(), kBytes, absl::Milliseconds(20)).status());
  }
  go_on.set_value();
  for (const absl::Status& status : all) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  }
}

TEST_F(RegionTest, WaitsAsLongAsItMay) {
  RegionServer server(GrantHostMemory);
  const auto region =
      Region::Lease(server.path(), kBytes, absl::InfiniteDuration());
  EXPECT_TRUE(region.ok()) << region.status();
}

TEST_F(RegionTest, ARefusalIsTheServers) {
  const absl::Status full = wire::WithRetryInfo(
      absl::ResourceExhaustedError("no slab is left"), absl::Seconds(3));
  v1::RegionReply reply;
  reply.set_status(wire::EncodeStatus(full));
  const absl::Status status = LeaseWith(reply.SerializeAsString(), -1);
  EXPECT_EQ(status, full);
  EXPECT_EQ(wire::RetryDelay(status), absl::Seconds(3));
  // Also where a descriptor comes along.
  const Descriptor memory = MemoryOf(kBytes);
  EXPECT_EQ(LeaseWith(reply.SerializeAsString(), memory.get()), full);
}

TEST_F(RegionTest, ARefusalBeforeTheRequestIsReadIsTheServers) {
  v1::RegionReply reply;
  reply.set_status(wire::EncodeStatus(absl::ResourceExhaustedError("flood")));
  RegionServer server(
      [&](int socket, const Packet&) {
        // The request lies there, unread, when the connection is closed.
        pollfd state = {.fd = socket, .events = POLLIN, .revents = 0};
        EXPECT_EQ(poll(&state, 1, -1), 1);
        EXPECT_TRUE(SendPacket(socket, reply.SerializeAsString()).ok());
        return false;
      },
      /*reads=*/false);
  EXPECT_EQ(Region::Lease(server.path(), kBytes, kLong).status(),
            absl::ResourceExhaustedError("flood"));
}

TEST_F(RegionTest, AServerThatHangsUp) {
  RegionServer server([](int, const Packet&) { return false; });
  const absl::Status status =
      Region::Lease(server.path(), kBytes, kLong).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(RegionTest, GarbledRepliesSayWhatIsWrong) {
  const Descriptor memory = MemoryOf(kBytes);
  const auto with = [&](const v1::RegionReply& reply) {
    return LeaseWith(reply.SerializeAsString(), memory.get());
  };
  ExpectGarbled(LeaseWith("garbage", memory.get()), "RegionReply");
  ExpectGarbled(LeaseWith(std::string(100'000, 'x'), memory.get()), "packet");
  v1::RegionReply reply = GoodReply(kBytes);
  reply.set_status("garbage");
  ExpectGarbled(with(reply), "status");
  reply.set_status(std::string("\x08\x00", 2));  // of code 0
  ExpectGarbled(with(reply), "status");
  for (const size_t size : {0, 15, 17}) {
    reply = GoodReply(kBytes);
    reply.set_region(std::string(size, 'r'));
    ExpectGarbled(with(reply), "region");
  }
  for (const int64_t bytes : {int64_t{-1}, int64_t{0}, kBytes - 1}) {
    ExpectGarbled(with(GoodReply(bytes)), "bytes");
  }
}

TEST_F(RegionTest, DescriptorsThatCouldKillTheProcessAreRefused) {
  const std::string good = GoodReply(kBytes).SerializeAsString();
  ExpectGarbled(LeaseWith(good, -1), "descriptor");
  const Descriptor small = MemoryOf(kBytes - 1);
  ExpectGarbled(LeaseWith(good, small.get()), "descriptor");
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
    const Descriptor memory = MemoryOf(kBytes, seals);
    ExpectGarbled(LeaseWith(good, memory.get()), "descriptor");
  }
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reader(ends[0]), writer(ends[1]);
  ExpectGarbled(LeaseWith(good, reader.get()), "descriptor");
  // One that nobody may write to.
  const Descriptor sealed =
      MemoryOf(kBytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  const absl::Status status = LeaseWith(good, sealed.get());
  EXPECT_TRUE(absl::IsInternal(status)) << status;
}

TEST_F(RegionTest, ALargerThanAnyMemoryIsRefused) {
  const int64_t bytes = int64_t{1} << 62;
  const Descriptor memory = MemoryOf(bytes);
  const absl::Status status =
      LeaseWith(GoodReply(bytes).SerializeAsString(), memory.get());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST_F(RegionTest, SeveralDescriptorsAreRefusedAndClosed) {
  RegionServer server([](int socket, const Packet&) {
    const Descriptor memory = MemoryOf(kBytes);
    const std::string reply = GoodReply(kBytes).SerializeAsString();
    iovec data = {const_cast<char*>(reply.data()), reply.size()};
    const int fds[3] = {memory.get(), memory.get(), memory.get()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(fds));
    std::memcpy(CMSG_DATA(part), fds, sizeof(fds));
    EXPECT_EQ(sendmsg(socket, &message, 0), reply.size());
    return true;
  });
  ExpectGarbled(Region::Lease(server.path(), kBytes, kLong).status(), "packet");
}

TEST_F(RegionTest, GivesOutRoomForTensors) {
  RegionServer server(GrantHostMemory);
  auto leased = Region::Lease(server.path(), 4096, kLong);
  ASSERT_TRUE(leased.ok()) << leased.status();
  Region& region = **leased;
  const auto* begin = static_cast<const char*>(region.data());
  const auto a = region.Allocate(DType::kF32, {5, 7});
  const auto b = region.Allocate(DType::kBF16, {1, 1000});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(a->data, begin);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(b->data, begin + 256);
  const absl::Status full = region.Allocate(DType::kF32, {1000}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("[1000]"));
  EXPECT_TRUE(
      absl::IsInvalidArgument(region.Allocate(DType::kF32, {-1}).status()));
  // What is empty takes nothing, and gives nothing back.
  const auto empty = region.Allocate(DType::kF32, {3, 0});
  ASSERT_TRUE(empty.ok()) << empty.status();
  region.Free(*empty);
  EXPECT_NE(region.Allocate(DType::kF32, {1})->data, a->data);
  region.Free(*a);
  region.Free(*b);
  EXPECT_EQ(region.Allocate(DType::kF32, {35})->data, a->data);
}

TEST_F(RegionTest, LeasesOrAllocates) {
  RegionServer server(GrantHostMemory);
  auto region = Region::LeaseOrAllocate(server.path(), kBytes, kLong);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_TRUE((*region)->status().ok());

  region = Region::LeaseOrAllocate("/nowhere/at/all", kBytes, kLong);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_TRUE(absl::IsUnavailable((*region)->status()));
  EXPECT_EQ((*region)->id(), "");
  EXPECT_EQ((*region)->server_instance_id(), "");
  EXPECT_EQ((*region)->bytes(), kBytes);
  const auto tensor = (*region)->Allocate(DType::kF32, {kBytes / 4});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(static_cast<const float*>(tensor->data)[kBytes / 4 - 1], 0);

  EXPECT_TRUE(absl::IsResourceExhausted(
      Region::LeaseOrAllocate("/nowhere", int64_t{1} << 62, kLong).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Region::LeaseOrAllocate("/nowhere", -1, kLong).status()));
}

}  // namespace
}  // namespace attnd::client
