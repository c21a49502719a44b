// Timeouts as long as the wire can say, or as a program can ask for: they are
// long, and none of them wraps round into the past.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "tests/integration/http2.h"
#include "tests/integration/process.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

std::unique_ptr<ServerProcess> Start() {
  auto process = ServerProcess::Start(ATTND_BINARY,
                                      {"--memory_limit=128MiB", "--threads=1"});
  EXPECT_TRUE(process.ok()) << process.status();
  return *std::move(process);
}

TEST(LongTimeout, OnTheWireIsLong) {
  const auto process = Start();
  const std::string request = server::GoodForward().SerializeAsString();
  // 2562047 hours are 2^63 nanoseconds, and all of these at least a minute.
  for (const char* timeout :
       {"60S", "99999999u", "99999999m", "99999999S", "99999999M", "99999999H",
        "10000000H", "2562047H", "2562048H", "02562047H", "2045222H",
        "2045223H", "5124095H", "5124096H", "76861433H", "17500000H",
        "65000000M", "9223372S"}) {
    const Http2Answer answer =
        RawHttp2Call(process->tcp(), "/attn.v1.AttentionService/Forward",
                     {{"grpc-timeout", timeout}}, request);
    EXPECT_TRUE(answer.Says("grpc-status", "0"))
        << timeout << ": " << answer.headers;
  }
  // A tenth of a second may pass, but it ends.
  EXPECT_TRUE(RawHttp2Call(process->tcp(), "/attn.v1.AttentionService/Forward",
                           {{"grpc-timeout", "99999999n"}}, request)
                  .ended);
}

TEST(LongTimeout, OfTheClientIsLong) {
  const auto process = Start();
  const float zeros[8] = {};
  float o[8];
  for (const std::string& target :
       {process->tcp(), std::string(process->unix_socket())}) {
    auto client = client::Client::Create(target);
    ASSERT_TRUE(client.ok()) << client.status();
    client::ForwardCall call;
    call.q = call.k = call.v = {client::DType::kF32, {1, 1, 1, 8}, zeros};
    call.o = {client::DType::kF32, {1, 1, 1, 8}, o};
    for (const double seconds : {1e3, 7.3e9, 7.4e9, 9.1e9, 9.2e9, 9.3e9, 1.8e10,
                                 1e12, 1e15, 9.2e15, 9.3e15, 9.2e18, 1e30}) {
      const absl::Duration timeout = absl::Seconds(seconds);
      const auto report = (*client)->Forward(call, {.timeout = timeout});
      EXPECT_TRUE(report.ok()) << timeout << ": " << report.status();
    }
  }
}

TEST(LongTimeout, OfADrainIsRefusedByItsFlag) {
  for (const char* time : {"25h", "2562047h", "2562048h", "1e300h", "inf"}) {
    const Ran ran =
        RunProgram({ATTND_BINARY, absl::StrCat("--drain_time=", time)});
    EXPECT_EQ(ran.exit_status, 2) << time;
    EXPECT_NE(ran.output.find("--drain_time"), std::string::npos) << ran.output;
  }
}

}  // namespace
}  // namespace attnd::testing
