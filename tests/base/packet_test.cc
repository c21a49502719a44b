#include "base/packet.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace attnd {
namespace {

namespace fs = std::filesystem;

int64_t OpenDescriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"),
                       fs::directory_iterator());
}

class PacketTest : public ::testing::Test {
 public:
  PacketTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    near_ = Descriptor(ends[0]);
    far_ = Descriptor(ends[1]);
  }

  // A packet as somebody else might send it.
  void SendWith(const std::string& bytes, const std::vector<int>& fds) {
    iovec data = {const_cast<char*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_EQ(sendmsg(far_.get(), &message, 0), bytes.size());
  }

  Descriptor near_, far_;
};

TEST_F(PacketTest, BytesAndADescriptorArriveTogether) {
  std::array<int, 2> pipe_ends;
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const Descriptor in(pipe_ends[0]), out(pipe_ends[1]);
  ASSERT_EQ(SendPacket(far_.get(), "hello", out.get()), absl::OkStatus());
  ASSERT_EQ(SendPacket(far_.get(), std::string("a\0b", 3)), absl::OkStatus());
  auto packet = ReceivePacket(near_.get(), 100);
  ASSERT_EQ(packet.status(), absl::OkStatus());
  EXPECT_EQ(packet->bytes, "hello");
  ASSERT_TRUE(packet->descriptor.valid());
  EXPECT_NE(packet->descriptor.get(), out.get());
  EXPECT_EQ(fcntl(packet->descriptor.get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(write(packet->descriptor.get(), "x", 1), 1);
  char read_back = 0;
  ASSERT_EQ(read(in.get(), &read_back, 1), 1);
  EXPECT_EQ(read_back, 'x');
  packet = ReceivePacket(near_.get(), 3);
  ASSERT_EQ(packet.status(), absl::OkStatus());
  EXPECT_EQ(packet->bytes, std::string("a\0b", 3));
  EXPECT_FALSE(packet->descriptor.valid());
}

TEST_F(PacketTest, SurplusDescriptorsAreClosed) {
  const int64_t before = OpenDescriptors();
  for (size_t count :
       {size_t{2}, size_t{3}, size_t{8}, size_t{9}, size_t{253}}) {
    SendWith("many", std::vector<int>(count, 0));
    EXPECT_EQ(ReceivePacket(near_.get(), 100).status().code(),
              absl::StatusCode::kInvalidArgument)
        << count;
    EXPECT_EQ(OpenDescriptors(), before) << count;
  }
  // And the next packet is as if nothing had been.
  SendWith("one", {0});
  EXPECT_EQ(ReceivePacket(near_.get(), 100)->bytes, "one");
}

TEST_F(PacketTest, ALongPacketIsRefusedWholeWithItsDescriptor) {
  const int64_t before = OpenDescriptors();
  SendWith(std::string(101, 'x'), {0});
  EXPECT_EQ(ReceivePacket(near_.get(), 100).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenDescriptors(), before);
  SendWith(std::string(100, 'x'), {});
  EXPECT_EQ(ReceivePacket(near_.get(), 100)->bytes, std::string(100, 'x'));
}

TEST_F(PacketTest, ThePeersEndIsUnavailable) {
  far_ = Descriptor();
  EXPECT_EQ(ReceivePacket(near_.get(), 100).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(SendPacket(near_.get(), "x").code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(PacketTest, ASocketThatDoesNotBlockSaysSo) {
  ASSERT_EQ(fcntl(near_.get(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(fcntl(far_.get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(ReceivePacket(near_.get(), 100).status().code(),
            absl::StatusCode::kFailedPrecondition);
  absl::Status status;
  int sent = 0;
  while ((status = SendPacket(far_.get(), "x")).ok()) ++sent;
  EXPECT_GT(sent, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

// In a child, which alone may then have no more.
TEST_F(PacketTest, WithoutRoomForADescriptorItIsExhaustedAndNothingIsLeft) {
  SendWith("one", {0});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(std::max(near_.get(), far_.get())) + 1;
    setrlimit(RLIMIT_NOFILE, &limit);
    // No number below the limit is free.
    while (dup(0) >= 0) {
    }
    const auto packet = ReceivePacket(near_.get(), 100);
    _exit(absl::IsResourceExhausted(packet.status()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace attnd
