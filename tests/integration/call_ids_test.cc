// Request ids and traces: what a client says, what it hears, and where an
// operator finds it again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attn/v1/attention.grpc.pb.h"
#include "attnd/client.h"
#include "proto/wire/status.h"
#include "tests/client/live_server.h"
#include "tests/hang_limit.h"
#include "tests/integration/http_get.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/temp_folder.h"

namespace attnd::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kTraceparent =
    absl::StrCat("00-", kTrace, "-00f067aa0ba902b7-01");

using Metadata = std::map<std::string, std::string>;

class CallIdsTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(),
                 {"--memory_limit=128MiB", "--admin_address=127.0.0.1:0"});
    auto process = ServerProcess::Start(ATTND_BINARY, flags);
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    ASSERT_TRUE(process_->AwaitLog(", HTTP and gRPC")) << process_->log();
    channel_ = Connect(process_->tcp());
  }

  // A forward with `sent` as its metadata; what came back after its answer.
  Metadata Call(const Metadata& sent, const attn::v1::ForwardRequest& request,
                grpc::StatusCode code = grpc::StatusCode::OK) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoSeconds(kHangLimit));
    for (const auto& [key, value] : sent) context.AddMetadata(key, value);
    attn::v1::ForwardResponse response;
    const grpc::Status status =
        attn::v1::AttentionService::NewStub(channel_)->Forward(
            &context, request, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    Metadata heard;
    for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
      heard.emplace(std::string(key.data(), key.size()),
                    std::string(value.data(), value.size()));
    }
    return heard;
  }
  static attn::v1::ForwardRequest Good() { return RandomForward(8, 2, 8); }
  static attn::v1::ForwardRequest Bad() {
    attn::v1::ForwardRequest request = Good();
    request.mutable_k()->set_shape(2, 3);
    return request;
  }

  std::unique_ptr<ServerProcess> process_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(CallIdsTest, WhoSaysNothingHearsNothing) {
  Start();
  const Metadata heard = Call({}, Good());
  EXPECT_EQ(heard.count("x-request-id"), 0);
  EXPECT_EQ(heard.count("traceparent"), 0);
}

TEST_F(CallIdsTest, AnAnswerRepeatsTheIdAndSaysTheServersSpan) {
  Start();
  const Metadata heard =
      Call({{"x-request-id", "job-7"}, {"traceparent", kTraceparent}}, Good());
  EXPECT_EQ(heard.at("x-request-id"), "job-7");
  EXPECT_THAT(heard.at("traceparent"),
              MatchesRegex(absl::StrCat("00-", kTrace, "-[0-9a-f]{16}-01")));
  EXPECT_NE(heard.at("traceparent"), kTraceparent);
}

TEST_F(CallIdsTest, AnErrorHasAnIdByWhichTheLogAndStatuszKnowIt) {
  Start();
  const Metadata heard = Call({}, Bad(), grpc::StatusCode::INVALID_ARGUMENT);
  const std::string id = heard.at("x-request-id");
  EXPECT_THAT(id, MatchesRegex("[0-9a-f]{16}"));
  EXPECT_TRUE(process_->AwaitLog(absl::StrCat("request_id=", id, " ")))
      << process_->log();
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(HttpGet(process_->admin_port(), "/statusz"), id);
  }));
}

// Ids go into the log and onto a page, so not every text is one.
TEST_F(CallIdsTest, WhatIsNoIdIsNotRepeated) {
  Start();
  const Metadata heard =
      Call({{"x-request-id", "a b"}, {"traceparent", "00-bad"}}, Bad(),
           grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(heard.at("x-request-id"), MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(heard.count("traceparent"), 0);
}

TEST_F(CallIdsTest, AsJsonTheLogHasEveryCallAtDebug) {
  Start({"--log_format=json", "--log_level=debug"});
  Call({{"x-request-id", "job-8"}, {"traceparent", kTraceparent}}, Good());
  ASSERT_TRUE(process_->AwaitLog("job-8")) << process_->log();
  json found;
  const std::vector<std::string> lines =
      absl::StrSplit(process_->log(), '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(parsed.is_object()) << line;
    for (const char* name : {"time", "level", "message"}) {
      EXPECT_TRUE(parsed[name].is_string()) << line;
    }
    if (parsed.value("request_id", "") == "job-8") found = parsed;
  }
  EXPECT_EQ(found["level"], "debug");
  EXPECT_EQ(found["message"], "Forward: OK");
  EXPECT_EQ(found["trace_id"], kTrace);
  EXPECT_EQ(found["shape"], "forward:f32:b1:s8:h2:d8");
  EXPECT_EQ(found["batch_requests"], 1);
  EXPECT_GT(found["duration_ms"], 0);
  EXPECT_GT(found["received_bytes"], 0);
}

// Calls that are small have ids as well, and whoever may not call an address.
TEST_F(CallIdsTest, SoDoGetServerInfoAndCallsThatAreNotLetIn) {
  const TempFolder folder;
  const std::string tokens = folder.File("tokens");
  std::ofstream(tokens) << "someone sha256:" << std::string(64, '5') << "\n";
  Start({"--token_file=" + tokens, "--require_identity"});
  const Metadata heard = Call({{"x-request-id", "job-9"}}, Good(),
                              grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(heard.at("x-request-id"), "job-9");
  EXPECT_TRUE(process_->AwaitLog("request_id=job-9 "));

  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "info-1");
  attn::v1::GetServerInfoResponse info;
  const grpc::Status status =
      attn::v1::AttentionService::NewStub(channel_)->GetServerInfo(&context, {},
                                                                   &info);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const auto& trailing = context.GetServerTrailingMetadata();
  ASSERT_NE(trailing.find("x-request-id"), trailing.end());
  EXPECT_EQ(trailing.find("x-request-id")->second, "info-1");
  EXPECT_TRUE(process_->AwaitLog("request_id=info-1 "));

  int named = 0;
  const std::vector<std::string> lines = absl::StrSplit(process_->log(), '\n');
  for (const std::string& line : lines) {
    if (!absl::StrContains(line, "request_id=")) continue;
    ++named;
    EXPECT_THAT(line, HasSubstr(" client=ipv4:127.0.0.1 "));
  }
  EXPECT_EQ(named, 2);
}

// What is refused says why in a word, for programs.
TEST_F(CallIdsTest, ARefusalHasAReason) {
  Start({"--max_request_flops=10"});
  const auto reason_of = [this](const attn::v1::ForwardRequest& request) {
    attn::v1::ForwardResponse response;
    const absl::Status status = Forward(channel_, request, response);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return wire::Reason(status);
  };
  EXPECT_EQ(reason_of(Good()), "TOO_LARGE");
  EXPECT_EQ(reason_of(Bad()), "INVALID");
  // A call is counted once its client has been answered.
  const auto counted = [this] {
    return MetricValue(HttpGet(process_->admin_port(), "/metrics"),
                       "attnd_refused_calls_total{reason=\"too_large\"}");
  };
  EXPECT_TRUE(Eventually([&] { return counted() == 1; }))
      << counted().value_or(-1);
}

// By the client library: whichever way a call travels.
TEST_F(CallIdsTest, TheLibrarySaysThemAndErrorsHaveThem) {
  Start({"--log_level=debug"});
  auto client = client::Client::Create(process_->tcp());
  ASSERT_TRUE(client.ok()) << client.status();
  for (const auto transport :
       {client::TransportKind::kUnary, client::TransportKind::kStream}) {
    SCOPED_TRACE(static_cast<int>(transport));
    client::CallOptions options;
    options.timeout = kHangLimit;
    options.transport = transport;
    client::Example example(8, 8);
    options.request_id = absl::StrCat("good-", static_cast<int>(transport));
    options.traceparent = kTraceparent;
    const auto report = (*client)->Forward(example.call, options);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(process_->AwaitLog(
        absl::StrCat("request_id=", options.request_id, " trace_id=", kTrace)))
        << process_->log();

    example.call.attention.softcap = -1;
    options.request_id = absl::StrCat("bad-", static_cast<int>(transport));
    const absl::Status named =
        (*client)->Forward(example.call, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(named)) << named;
    EXPECT_EQ(client::RequestIdOf(named), options.request_id);

    options.request_id.clear();
    const absl::Status unnamed =
        (*client)->Forward(example.call, options).status();
    const std::string id = client::RequestIdOf(unnamed);
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{16}"));
    EXPECT_TRUE(process_->AwaitLog(absl::StrCat("request_id=", id, " ")))
        << process_->log();
  }
}

}  // namespace
}  // namespace attnd::testing
