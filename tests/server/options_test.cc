#include "server/config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace attnd::server {
namespace {

using ::testing::StartsWith;

std::string Refusal(const std::function<void(ServerOptions&)>& change) {
  ServerOptions options;
  change(options);
  const absl::Status status = options.Validate();
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(ServerOptions, DefaultsAreValid) {
  EXPECT_EQ(Refusal([](ServerOptions&) {}), "");
}

TEST(ServerOptions, NamesTheFlagThatIsOutOfRange) {
  EXPECT_THAT(Refusal([](auto& o) { o.port = 65536; }), StartsWith("--port:"));
  EXPECT_THAT(Refusal([](auto& o) { o.port = -1; }), StartsWith("--port:"));
  EXPECT_THAT(Refusal([](auto& o) { o.metrics_port = -2; }),
              StartsWith("--metrics_port:"));
  EXPECT_THAT(Refusal([](auto& o) { o.host = ""; }), StartsWith("--host:"));
  EXPECT_THAT(Refusal([](auto& o) { o.unix_socket.assign(108, 'x'); }),
              StartsWith("--unix_socket:"));
  EXPECT_THAT(Refusal([](auto& o) { o.unix_socket = "@abstract"; }),
              StartsWith("--unix_socket:"));
  EXPECT_THAT(Refusal([](auto& o) { o.unix_socket_mode = 01777; }),
              StartsWith("--unix_socket_mode:"));
  EXPECT_THAT(Refusal([](auto& o) { o.memory_limit_bytes = 1 << 20; }),
              StartsWith("--memory_limit:"));
  EXPECT_THAT(Refusal([](auto& o) { o.max_message_bytes = -1; }),
              StartsWith("--max_message:"));
  EXPECT_THAT(Refusal([](auto& o) { o.drain_time = -absl::Seconds(1); }),
              StartsWith("--drain_time:"));
  EXPECT_THAT(Refusal([](auto& o) { o.keepalive_time = absl::ZeroDuration(); }),
              StartsWith("--keepalive_time:"));
  EXPECT_THAT(Refusal([](auto& o) { o.scheduler.lanes_per_device = 0; }),
              StartsWith("--lanes:"));
  EXPECT_THAT(Refusal([](auto& o) { o.scheduler.max_queue_requests = 0; }),
              StartsWith("--max_queue_requests:"));
  EXPECT_THAT(Refusal([](auto& o) { o.max_metadata_bytes = 1000; }),
              StartsWith("--max_metadata:"));
  EXPECT_THAT(Refusal([](auto& o) { o.max_connections = 0; }),
              StartsWith("--max_connections:"));
  EXPECT_THAT(Refusal([](auto& o) { o.max_connections_per_client = 0; }),
              StartsWith("--max_connections_per_client:"));
  EXPECT_THAT(Refusal([](auto& o) { o.idle_timeout = absl::Milliseconds(1); }),
              StartsWith("--idle_timeout:"));
  EXPECT_THAT(Refusal([](auto& o) { o.header_time = absl::ZeroDuration(); }),
              StartsWith("--header_time:"));
  EXPECT_THAT(Refusal([](auto& o) { o.io_threads = -1; }),
              StartsWith("--io_threads:"));
  EXPECT_THAT(Refusal([](auto& o) { o.scheduler.max_batch_flops = -1; }),
              StartsWith("--max_batch_flops:"));
  EXPECT_THAT(Refusal([](auto& o) { o.scheduler.small_request_flops = NAN; }),
              StartsWith("--small_request_flops:"));
  EXPECT_THAT(Refusal([](auto& o) { o.scheduler.small_request_bytes = -1; }),
              StartsWith("--small_request_bytes:"));
  EXPECT_THAT(Refusal([](auto& o) { o.scheduler.run_here_flops = 1e19; }),
              StartsWith("--run_here_flops:"));
  EXPECT_THAT(Refusal([](auto& o) {
                o.scheduler.max_batch_delay = absl::InfiniteDuration();
              }),
              StartsWith("--max_batch_delay:"));
}

TEST(ServerOptions, TheAdminAddressIsLoopbackUnlessInsecure) {
  for (const char* good : {"127.0.0.1:0", "[::1]:7412", "localhost:65535"}) {
    EXPECT_EQ(Refusal([good](auto& o) { o.admin_address = good; }), "") << good;
  }
  for (const char* bad :
       {"127.0.0.1", ":7412", "7412", "::1:7412", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:"}) {
    EXPECT_THAT(Refusal([bad](auto& o) { o.admin_address = bad; }),
                StartsWith("--admin_address: must be HOST:PORT"))
        << bad;
  }
  EXPECT_THAT(Refusal([](auto& o) { o.admin_address = "0.0.0.0:7412"; }),
              StartsWith("--admin_address: 0.0.0.0 is not loopback"));
  EXPECT_EQ(Refusal([](auto& o) {
              o.admin_address = "0.0.0.0:7412";
              o.allow_insecure_bind = true;
            }),
            "");
}

TEST(ServerOptions, SaysTheRangeOfTheSchedulersFlags) {
  EXPECT_EQ(
      Refusal([](auto& o) { o.scheduler.max_batch_delay = absl::Seconds(11); }),
      "--max_batch_delay: must be 0 to 10s, is 11s");
  EXPECT_EQ(Refusal([](auto& o) {
              o.scheduler.slice_time = absl::Microseconds(999);
            }),
            "--slice_time: must be 1ms to 10s, is 999us");
  EXPECT_EQ(Refusal([](auto& o) { o.scheduler.max_batch_requests = 4097; }),
            "--max_batch_requests: must be 1 to 4096, is 4097");
  EXPECT_EQ(Refusal([](auto& o) { o.scheduler.max_batch_flops = 2e18; }),
            "--max_batch_flops: must be 0 to 1e+18, is 2e+18");
  EXPECT_EQ(Refusal([](auto& o) { o.scheduler.max_request_flops = 1e16; }),
            "max_request_flops must be positive and at most max_queue_flops");
}

TEST(ServerOptions, IoThreadsAreThoseOfTheProcessorsUnlessSaid) {
  ServerOptions options;
  EXPECT_GE(options.IoThreads(), 1);
  EXPECT_LE(options.IoThreads(), 16);
  options.io_threads = 40;
  EXPECT_EQ(options.IoThreads(), 40);
}

TEST(ServerOptions, OnlyLoopbackWithoutInsecure) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_EQ(Refusal([&](auto& o) { o.host = host; }), "");
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org"}) {
    EXPECT_THAT(Refusal([&](auto& o) { o.host = host; }),
                StartsWith("--host:"));
    EXPECT_EQ(Refusal([&](auto& o) {
                o.host = host;
                o.allow_insecure_bind = true;
              }),
              "");
  }
}

TEST(ServerOptions, AUnixSocketAloneIsEnough) {
  EXPECT_EQ(Refusal([](auto& o) {
              o.port = -1;
              o.unix_socket = "/tmp/attnd.sock";
            }),
            "");
}

TEST(ServerOptions, RegionsHaveASocketOfTheirOwn) {
  EXPECT_EQ(Refusal([](auto& o) {
              o.unix_socket = "/tmp/attnd.sock";
              o.regions.socket = "/tmp/attnd.region";
            }),
            "");
  EXPECT_THAT(Refusal([](auto& o) {
                o.unix_socket = "/tmp/attnd.sock";
                o.regions.socket = "/tmp/attnd.sock";
              }),
              StartsWith("--region_socket:"));
  EXPECT_THAT(Refusal([](auto& o) { o.regions.slab_bytes = 1; }),
              StartsWith("--region_slab:"));
}

TEST(ServerOptions, WhoNeedsAnIdentityMustBeAbleToHaveOne) {
  const auto required = [](ServerOptions& o) { o.identity.required = true; };
  EXPECT_THAT(Refusal(required), StartsWith("--require_identity:"));
  EXPECT_EQ(Refusal([&](auto& o) {
              required(o);
              o.identity.token_file = "tokens";
            }),
            "");
}

TEST(ServerOptions, LimitsOfAClientAreNumbers) {
  for (const double rate : {-1.0, 2e9, std::nan("")}) {
    EXPECT_THAT(
        Refusal([&](auto& o) { o.identity.limits.calls_per_second = rate; }),
        StartsWith("--max_client_rate:"));
  }
  EXPECT_THAT(Refusal([](auto& o) { o.identity.limits.queue_bytes = -1; }),
              StartsWith("--max_client_queue_bytes:"));
  EXPECT_THAT(Refusal([](auto& o) { o.identity.limits.queue_flops = -1; }),
              StartsWith("--max_client_queue_flops:"));
}

TEST(ServerOptions, ConnectionsMayBeIdleForEver) {
  EXPECT_EQ(Refusal([](auto& o) { o.idle_timeout = absl::ZeroDuration(); }),
            "");
}

TEST(DivideMemory, SharesFitTheLimit) {
  for (int64_t limit = 16 << 20; limit < int64_t{1} << 45; limit *= 3) {
    const MemoryShares shares = DivideMemory(limit);
    EXPECT_LE(
        shares.transport_bytes + shares.small_bytes + shares.account_bytes,
        limit);
    EXPECT_LE(2 * shares.max_message_bytes, shares.transport_bytes);
    EXPECT_LT(shares.max_message_bytes, int64_t{1} << 31);
    // A backward's input and outputs are below 1.7 times its message.
    EXPECT_GE(shares.account_bytes, 2 * shares.max_message_bytes);
  }
}

}  // namespace
}  // namespace attnd::server
