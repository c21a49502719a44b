// Messages on their way, through attnd in a process of its own: those for which
// there is no room yet, those that stall, those that nobody reads.

#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "attn/v1/attention.pb.h"
#include "attnd/client.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "tests/hang_limit.h"
#include "tests/integration/http2.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

constexpr char kForwardPath[] = "/attn.v1.AttentionService/Forward";
constexpr char kHint[] = "attnd-request-bytes";

std::unique_ptr<ServerProcess> Start(std::vector<std::string> flags) {
  flags.push_back("--metrics_port=0");
  auto server = ServerProcess::Start(ATTND_BINARY, flags);
  EXPECT_EQ(server.status(), absl::OkStatus());
  return *std::move(server);
}

// A metric comes to lie in [least, most] within kHangLimit.
bool Becomes(const ServerProcess& server, const std::string& metric,
             double least, double most) {
  const absl::Time end = MonotonicNow() + kHangLimit;
  while (MonotonicNow() < end) {
    const double value = server.Metric(metric);
    if (value >= least && value <= most) return true;
  }
  return false;
}

bool BecomesZero(const ServerProcess& server, const std::string& gauge) {
  return Becomes(server, gauge, 0, 0);
}

bool Reaches(const ServerProcess& server, const std::string& metric,
             double least) {
  return Becomes(server, metric, least,
                 std::numeric_limits<double>::infinity());
}

// A forward of 2 queries whose message has some `mebibytes`.
attn::v1::ForwardRequest Large(int mebibytes) {
  attn::v1::ForwardRequest request;
  *request.mutable_q() = server::RandomTensor({1, 2, 1, 128});
  *request.mutable_k() = server::RandomTensor({1, mebibytes << 10, 1, 128});
  *request.mutable_v() = server::RandomTensor({1, mebibytes << 10, 1, 128});
  return request;
}

// Either done, or refused with a time after which to try again.
bool IsHonest(const absl::Status& status) {
  return status.ok() || (absl::IsResourceExhausted(status) &&
                         wire::RetryDelay(status).has_value());
}

// 16 clients send 1 MiB each. 6 MiB may be on their way, and as nobody says how
// long a message is, each holds room for the largest: 3 MiB.
TEST(Upload, WithoutAHintOverloadEndsNoCallButByARefusalWithADelay) {
  const auto server = Start({"--memory_limit=16MiB"});
  const std::string request = Large(1).SerializeAsString();
  std::atomic<int> done = 0, dishonest = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      const auto channel = Connect(server->tcp());
      for (int call = 0; call < 4; ++call) {
        const absl::Status status = RawCall(channel, Op::kForward, request);
        done += status.ok();
        if (IsHonest(status)) continue;
        ++dishonest;
        ADD_FAILURE() << status;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(done, 0);
  EXPECT_EQ(dishonest, 0);
  EXPECT_TRUE(BecomesZero(*server, "attnd_upload_bytes"));
}

TEST(Upload, WithTheClientLibrarysHintNeither) {
  const auto server = Start({"--memory_limit=16MiB"});
  std::vector<float> q(128), kv(1 << 18);
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      std::vector<float> o(128);
      client::ForwardCall call;
      call.q = {client::DType::kF32, {1, 1, 1, 128}, q.data()};
      call.k = {client::DType::kF32, {1, 1 << 11, 1, 128}, kv.data()};
      call.v = call.k;
      call.o = {client::DType::kF32, {1, 1, 1, 128}, o.data()};
      auto client = client::Client::Create(server->tcp());
      ASSERT_EQ(client.status(), absl::OkStatus());
      for (int i = 0; i < 4; ++i) {
        const absl::Status status = (*client)->Forward(call, {}).status();
        EXPECT_TRUE(IsHonest(status)) << status;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(BecomesZero(*server, "attnd_account_bytes"));
  EXPECT_TRUE(BecomesZero(*server, "attnd_upload_bytes"));
}

TEST(Upload, OneThatStallsIsCutAtTheStallTime) {
  const auto server = Start({"--stall_time=300ms"});
  for (const char* hint : {"100", "1048576", ""}) {
    std::vector<std::pair<std::string, std::string>> headers;
    if (*hint != 0) headers.emplace_back(kHint, hint);
    const Http2Answer answer = RawHttp2Call(
        server->tcp(), kForwardPath, headers, "some", /*missing_bytes=*/90);
    EXPECT_TRUE(answer.ended) << hint;
    EXPECT_TRUE(answer.Says("grpc-status", "4")) << hint;
    EXPECT_TRUE(BecomesZero(*server, "attnd_upload_bytes")) << hint;
  }
}

// The end comes with the last bytes that come of a frame, and gRPC has read
// some of it before: it would not see the end before keepalive does.
TEST(Upload, APeerThatHangsUpInAFrameIsNoticed) {
  const auto server = Start({"--keepalive_time=1h", "--stall_time=1h"});
  std::vector<Descriptor> peers;
  for (int i = 0; i < 10; ++i) {
    peers.emplace_back(SendRawHttp2Call(server->tcp(), kForwardPath, {}, "some",
                                        /*missing_bytes=*/9000));
    // A DATA frame of 8,000 bytes, and half of them.
    const std::string frame("\0\x1f\x40\0\0\0\0\0\1", 9);
    const std::string half = frame + std::string(4000, 'x');
    ASSERT_EQ(send(peers.back().get(), half.data(), half.size(), 0),
              std::ssize(half));
  }
  EXPECT_TRUE(Reaches(*server, "attnd_upload_bytes", 1));
  // gRPC may not have read them yet. It then sees the end by itself.
  absl::SleepFor(absl::Milliseconds(50));
  for (const Descriptor& peer : peers) {
    send(peer.get(), "xx", 2, MSG_MORE);
    shutdown(peer.get(), SHUT_WR);
  }
  EXPECT_TRUE(BecomesZero(*server, "attnd_upload_bytes"));
  EXPECT_TRUE(BecomesZero(*server, "attnd_connections"));
}

TEST(Upload, AnAnswerThatNobodyReadsIsDroppedAtTheStallTime) {
  const auto server = Start({"--stall_time=300ms"});
  attn::v1::ForwardRequest request;
  // O: 2 MiB out of 9 KiB.
  *request.mutable_q() = server::RandomTensor({1, 2048, 1, 1});
  *request.mutable_k() = server::RandomTensor({1, 1, 1, 1});
  *request.mutable_v() = server::RandomTensor({1, 1, 1, 256});
  const Descriptor socket(SendRawHttp2Call(server->tcp(), kForwardPath, {},
                                           request.SerializeAsString()));
  const std::string ended =
      "attnd_requests_total{code=\"CANCELLED\",method=\"Forward\"}";
  EXPECT_TRUE(Reaches(*server, ended, 1));
  EXPECT_EQ(server->Metric(ended), 1);
  EXPECT_TRUE(BecomesZero(*server, "attnd_account_bytes"));
}

TEST(Upload, OnesThatWaitAreRefusedOnceTheServerDrains) {
  const auto server = Start({"--memory_limit=16MiB"});
  // Two stall in all the memory that there is for large ones.
  const std::vector<std::pair<std::string, std::string>> large = {
      {kHint, "3145728"}};
  std::vector<Descriptor> stalled;
  for (int i = 0; i < 2; ++i) {
    stalled.emplace_back(
        SendRawHttp2Call(server->tcp(), kForwardPath, large, "some", 3000));
  }
  EXPECT_TRUE(Reaches(*server, "attnd_upload_bytes", 6 << 20));
  Http2Answer answer;
  std::thread waits([&] {
    answer = RawHttp2Call(server->tcp(), kForwardPath, large, "some", 3000);
  });
  EXPECT_TRUE(Reaches(*server, "attnd_uploads_waiting", 1));
  server->Signal(SIGTERM);
  waits.join();
  EXPECT_TRUE(answer.ended);
  EXPECT_TRUE(answer.Says("grpc-status", "14"));
  EXPECT_EQ(server->Wait(), 0);
}

}  // namespace
}  // namespace attnd::testing
