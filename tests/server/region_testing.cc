#include "tests/server/region_testing.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "attn/v1/region.pb.h"
#include "base/clock.h"
#include "base/packet.h"
#include "proto/wire/status.h"
#include "tests/hang_limit.h"

namespace attnd::server {

int OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  // One of them is the iterator's.
  return static_cast<int>(std::distance(begin(all), end(all))) - 1;
}

TestFolder::TestFolder()
    : path_(std::filesystem::temp_directory_path() / "attnd.XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) std::abort();
}

TestFolder::~TestFolder() { std::filesystem::remove_all(path_); }

TestMapping::TestMapping(int fd, int64_t bytes)
    : data_(static_cast<std::byte*>(
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0))),
      bytes_(bytes) {
  if (data_ == MAP_FAILED) std::abort();
}

TestMapping::~TestMapping() { munmap(data_, bytes_); }

void TestMapping::Fill(uint8_t value) { std::memset(data_, value, bytes_); }

bool TestMapping::IsAll(uint8_t value) const {
  return std::all_of(data_, data_ + bytes_, [value](std::byte byte) {
    return byte == std::byte{value};
  });
}

Descriptor NewMemory(int64_t bytes) {
  Descriptor fd(memfd_create("test", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), bytes) != 0) std::abort();
  return fd;
}

uint64_t FileNumber(int fd) {
  struct stat file = {};
  EXPECT_EQ(fstat(fd, &file), 0);
  return file.st_ino;
}

std::string LeaseRequest(int64_t bytes) {
  attn::v1::RegionRequest request;
  request.mutable_lease()->set_bytes(bytes);
  return request.SerializeAsString();
}

std::string ImportRequest(int64_t bytes, const std::string& gpu_uuid) {
  attn::v1::RegionRequest request;
  request.mutable_import()->set_bytes(bytes);
  request.mutable_import()->set_gpu_uuid(gpu_uuid);
  return request.SerializeAsString();
}

RegionClient::RegionClient(const std::string& path)
    : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  const timeval timeout = absl::ToTimeval(testing::kHangLimit);
  setsockopt(socket(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(socket(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::strncpy(to.sun_path, path.c_str(), sizeof(to.sun_path) - 1);
  EXPECT_EQ(connect(socket(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0)
      << std::strerror(errno);
}

bool RegionClient::Send(const std::string& packet,
                        const std::vector<int>& fds) {
  iovec data = {const_cast<char*>(packet.data()), packet.size()};
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
  return sendmsg(socket(), &message, MSG_NOSIGNAL) >= 0;
}

RegionAnswer RegionClient::Receive() {
  RegionAnswer answer;
  absl::StatusOr<Packet> packet = ReceivePacket(socket(), 4096);
  attn::v1::RegionReply reply;
  if (!packet.ok() || !reply.ParseFromString(packet->bytes)) {
    answer.status = absl::UnknownError("no answer");
    return answer;
  }
  EXPECT_TRUE(wire::DecodeStatus(reply.status(), answer.status).ok());
  answer.region = reply.region();
  answer.bytes = reply.bytes();
  answer.server_instance_id = reply.server_instance_id();
  answer.memory = std::move(packet->descriptor);
  return answer;
}

RegionAnswer RegionClient::Call(const std::string& packet,
                                const std::vector<int>& fds) {
  EXPECT_TRUE(Send(packet, fds)) << std::strerror(errno);
  return Receive();
}

bool RegionClient::HasEnded() {
  pollfd polled = {socket(), POLLRDHUP, 0};
  const auto limit =
      static_cast<int>(absl::ToInt64Milliseconds(testing::kHangLimit));
  return poll(&polled, 1, limit) == 1;
}

void PinWatcher::Note(std::vector<Pinned>& list) {
  {
    MutexLock lock(mutex_);
    list.push_back({std::this_thread::get_id(), MonotonicNow()});
  }
  absl::SleepFor(absl::Microseconds(pin_micros_.load()));
}

absl::Status PinWatcher::Pin(HostSpan memory) {
  Note(pinned_);
  return IdentityBackend::Pin(memory);
}

void PinWatcher::Unpin(HostSpan memory) {
  Note(unpinned_);
  IdentityBackend::Unpin(memory);
}

absl::StatusOr<std::shared_ptr<DeviceBuffer>> PinWatcher::Import(
    int fd, int64_t bytes) {
  auto buffer = IdentityBackend::Import(fd, bytes);
  if (!buffer.ok()) return buffer.status();
  DeviceBuffer* const memory = buffer->get();
  return std::shared_ptr<DeviceBuffer>(
      memory, [this, buffer = *std::move(buffer)](DeviceBuffer*) mutable {
        buffer = nullptr;
        MutexLock lock(mutex_);
        unmapped_by_.push_back(std::this_thread::get_id());
      });
}

std::vector<PinWatcher::Pinned> PinWatcher::pinned() const {
  MutexLock lock(mutex_);
  return pinned_;
}

std::vector<PinWatcher::Pinned> PinWatcher::unpinned() const {
  MutexLock lock(mutex_);
  return unpinned_;
}

std::vector<std::thread::id> PinWatcher::unmapped_by() const {
  MutexLock lock(mutex_);
  return unmapped_by_;
}

}  // namespace attnd::server
