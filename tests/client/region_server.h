#ifndef ATTND_TESTS_CLIENT_REGION_SERVER_H_
#define ATTND_TESTS_CLIENT_REGION_SERVER_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/v1/region.pb.h"
#include "base/packet.h"

namespace attnd::client {

// Memory as a server shares it: sealed, unless told otherwise.
inline Descriptor MemoryOf(int64_t bytes,
                           int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  Descriptor fd(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

inline size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// A server's region socket, of which the test says what it answers. Whatever
// was granted lasts until the test, or the client, ends it.
class RegionServer {
 public:
  // Runs on the server's thread with each request; sends on the socket. False:
  // the connection is closed then.
  using Answer = std::function<bool(int socket, const Packet& request)>;

  explicit RegionServer(Answer answer, bool reads = true)
      : answer_(std::move(answer)), reads_(reads) {
    static std::atomic<int> next{0};
    path_ = absl::StrCat(::testing::TempDir(), "attnd_region_", getpid(), "_",
                         next++);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    listener_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~RegionServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    EndLeases();
    thread_.join();
    unlink(path_.c_str());
  }

  const std::string& path() const { return path_; }

  void EndLeases() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Descriptor& lease : leases_) shutdown(lease.get(), SHUT_RDWR);
  }
  // Whether the client has ended the only lease; waits for it.
  bool LeaseEnds() {
    char byte = 0;
    int fd = -1;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      EXPECT_EQ(leases_.size(), 1);
      fd = leases_.back().get();
    }
    return recv(fd, &byte, 1, 0) == 0;
  }

 private:
  void Serve() {
    while (true) {
      Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.valid()) return;
      Packet request;
      const int socket = fd.get();
      {
        std::lock_guard<std::mutex> lock(mutex_);
        leases_.push_back(std::move(fd));
      }
      if (reads_) {
        auto received = ReceivePacket(socket, 4096);
        if (received.ok()) request = *std::move(received);
      }
      if (answer_(socket, request)) continue;
      std::lock_guard<std::mutex> lock(mutex_);
      leases_.pop_back();
    }
  }

  const Answer answer_;
  const bool reads_;
  std::string path_;
  Descriptor listener_;
  std::mutex mutex_;
  std::vector<Descriptor> leases_;
  std::thread thread_;
};

inline attn::v1::RegionReply GoodReply(int64_t bytes) {
  attn::v1::RegionReply reply;
  reply.set_region("sixteen secret b");
  reply.set_bytes(bytes);
  reply.set_server_instance_id("instance");
  return reply;
}

// Grants host memory as a good server does.
inline bool GrantHostMemory(int socket, const Packet& packet) {
  attn::v1::RegionRequest request;
  EXPECT_TRUE(request.ParseFromString(packet.bytes));
  EXPECT_FALSE(packet.descriptor.valid());
  const int64_t bytes = request.lease().bytes();
  const Descriptor memory = MemoryOf(bytes);
  return SendPacket(socket, GoodReply(bytes).SerializeAsString(), memory.get())
      .ok();
}

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_REGION_SERVER_H_
