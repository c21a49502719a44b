#ifndef ATTND_TESTS_CLIENT_LIVE_SERVER_H_
#define ATTND_TESTS_CLIENT_LIVE_SERVER_H_

// A client, attnd in another process, and calls whose memory goes with them.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "attnd/client.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"

namespace attnd::client {

using ::attnd::testing::ServerProcess;

// Memory that nobody may read once it is gone. The address sanitizer sees who
// does, sendmsg included; without it the pages are unmapped, so that a write
// from them fails, and the connection with it.
class Memory {
 public:
#ifdef __SANITIZE_ADDRESS__
  explicit Memory(size_t floats) : floats_(new float[floats]) {}
  float* data() const { return floats_.get(); }

 private:
  const std::unique_ptr<float[]> floats_;
#else
  explicit Memory(size_t floats) : bytes_(floats * sizeof(float)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  float* data() const { return static_cast<float*>(data_); }

 private:
  const size_t bytes_;
  void* data_;
#endif
};

// A forward whose K and V are one row: O is V's row, whatever Q is. Its memory
// goes with it.
struct Example {
  Example(int64_t tokens, int64_t dim)
      : size(tokens * dim), q(size), o(size), kv(dim) {
    absl::BitGen rng;
    std::fill(q.data(), q.data() + size, absl::Uniform(rng, 0.0f, 1.0f));
    std::fill(o.data(), o.data() + size, -1.0f);
    for (float& x : kv) x = absl::Uniform(rng, 0.0f, 1.0f);
    call.q = {DType::kF32, {1, tokens, 1, dim}, q.data()};
    call.k = call.v = {DType::kF32, {1, 1, 1, dim}, kv.data()};
    call.o = {DType::kF32, {1, tokens, 1, dim}, o.data()};
  }

  void ExpectAnswered() const {
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(o.data()[i], kv[i % kv.size()]) << i;
    }
  }

  const size_t size;
  Memory q, o;
  std::vector<float> kv;
  ForwardCall call;
};

class LiveServerTest : public ::testing::Test {
 protected:
  // What the server said tells why a call failed.
  ~LiveServerTest() override {
    if (HasFailure() && server_ != nullptr) {
      GTEST_LOG_(INFO) << "the server's log:\n" << server_->log();
    }
  }

  void Start(const ClientOptions& options = {},
             const std::vector<std::string>& flags = {}) {
    auto server = ServerProcess::Start(ATTND_BINARY, flags);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto client = Client::Create(target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    ExpectServes();
  }
  virtual std::string target() const { return server_->tcp(); }

  void ExpectServes() {
    Example example(2, 4);
    const auto report = client_->Forward(example.call, {testing::kHangLimit});
    ASSERT_TRUE(report.ok()) << report.status();
    example.ExpectAnswered();
  }

  // The client goes first: its calls need the server to end.
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
};

// Over a TCP connection or a unix socket.
class EverySocketTest : public LiveServerTest,
                        public ::testing::WithParamInterface<bool> {
 protected:
  std::string target() const override {
    return GetParam() ? server_->unix_socket() : server_->tcp();
  }
};
inline std::string SocketName(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Unix" : "Tcp";
}

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_LIVE_SERVER_H_
