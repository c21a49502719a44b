// Who calls and what each client may have, over real gRPC.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attn/v1/attention.grpc.pb.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/status.h"
#include "server/server.h"
#include "tests/hang_limit.h"
#include "tests/integration/exchange_parts.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/token_testing.h"

namespace attnd::testing {
namespace {

namespace pb = ::attn::v1;
using server::HashWord;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Headers = std::vector<std::string>;

const Headers kNone;
const Headers kAlice = {"Bearer tokenA"}, kBob = {"Bearer tokenB"};

std::unique_ptr<grpc::ClientContext> ContextWith(const Headers& headers) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + kHangLimit));
  for (const std::string& header : headers) {
    context->AddMetadata("authorization", header);
  }
  return context;
}

// One stream of an Exchange.
class Stream {
 public:
  Stream(pb::AttentionService::Stub& stub, const Headers& headers)
      : context_(ContextWith(headers)),
        stream_(stub.Exchange(context_.get())) {}
  ~Stream() { context_->TryCancel(); }

  void Send(const pb::ExchangeRequest& part) { stream_->Write(part); }
  pb::ExchangeResponse Read() {
    pb::ExchangeResponse response;
    stream_->Read(&response);
    return response;
  }
  absl::Status End() {
    stream_->WritesDone();
    pb::ExchangeResponse response;
    while (stream_->Read(&response)) {
    }
    return wire::FromGrpcStatus(stream_->Finish());
  }

 private:
  const std::unique_ptr<grpc::ClientContext> context_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<pb::ExchangeRequest, pb::ExchangeResponse>>
      stream_;
};

class IdentityTest : public ::testing::Test {
 protected:
  IdentityTest() {
    options_.memory_limit_bytes = 256 << 20;
    options_.scheduler.lanes_per_device = 1;
    options_.scheduler.max_batch_requests = 1;
    options_.identity.token_file = file_.path();
    options_.log = [this](const LogLine& line) {
      std::lock_guard lock(mutex_);
      absl::StrAppend(&log_, line.message, "\n");
    };
    WriteTokens();
  }

  void WriteTokens(const std::string& of_alice = "",
                   const std::string& of_bob = "") {
    file_.Write(absl::StrCat("alice ", HashWord("tokenA"), of_alice, "\nbob ",
                             HashWord("tokenB"), of_bob, "\n"));
  }
  template <typename Device>
  Device* Start() {
    auto device = std::make_unique<Device>();
    Device* const kept = device.get();
    std::vector<std::unique_ptr<Backend>> devices;
    devices.push_back(std::move(device));
    auto server = server::Server::Start(options_, std::move(devices));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = Connect(absl::StrCat("127.0.0.1:", server_->port()));
    stub_ = pb::AttentionService::NewStub(channel_);
    return kept;
  }

  absl::Status Forward(
      const Headers& headers,
      const pb::ForwardRequest& request = server::GoodForward()) {
    pb::ForwardResponse response;
    return wire::FromGrpcStatus(
        stub_->Forward(ContextWith(headers).get(), request, &response));
  }
  std::future<absl::Status> Begin(const Headers& headers,
                                  const pb::ForwardRequest& request) {
    return std::async(std::launch::async,
                      [=, this] { return Forward(headers, request); });
  }
  absl::Status Backward(const Headers& headers) {
    pb::BackwardResponse response;
    return wire::FromGrpcStatus(stub_->Backward(
        ContextWith(headers).get(), server::GoodBackward(), &response));
  }
  absl::Status GetServerInfo(const Headers& headers) {
    pb::GetServerInfoResponse response;
    const grpc::Status status = stub_->GetServerInfo(
        ContextWith(headers).get(), pb::GetServerInfoRequest(), &response);
    EXPECT_EQ(status.ok(), !response.version().empty());
    return wire::FromGrpcStatus(status);
  }
  absl::Status Exchange(const Headers& headers, const std::string& first) {
    Stream stream(*stub_, headers);
    stream.Send(Part(first));
    return stream.End();
  }
  std::string log() {
    std::lock_guard lock(mutex_);
    return log_;
  }

  const server::TempTokenFile file_;
  server::ServerOptions options_;
  std::mutex mutex_;
  std::string log_;
  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::AttentionService::Stub> stub_;
};

TEST_F(IdentityTest, WhateverIsWrongEveryMethodRefusesItAlike) {
  options_.identity.required = true;
  Start<server::IdentityBackend>();
  const absl::Status refusal =
      absl::UnauthenticatedError("the call is not authenticated");
  const std::vector<Headers> wrong = {
      kNone,
      {"Bearer tokenC"},
      {"Bearer "},
      {"Bearer tokenA tokenB"},
      {"Basic dG9rZW5B"},
      {absl::StrCat("Bearer ", HashWord("tokenA").substr(7))},
      {"Bearer tokenA", "Bearer tokenA"},
      {"Bearer tokenA", "Bearer tokenC"},
      {std::string(2000, 'x')}};
  for (const Headers& headers : wrong) {
    SCOPED_TRACE(headers.empty() ? "none" : headers.back());
    EXPECT_EQ(Forward(headers), refusal);
    EXPECT_EQ(Backward(headers), refusal);
    EXPECT_EQ(GetServerInfo(headers), refusal);
    EXPECT_EQ(Exchange(headers, Header()), refusal);
    EXPECT_EQ(Exchange(headers, "join { transfer: 'x' }"), refusal);
    // Over the same connection, before and after.
    EXPECT_EQ(Forward(kAlice), absl::OkStatus());
    EXPECT_EQ(Backward(kBob), absl::OkStatus());
    EXPECT_EQ(GetServerInfo(kBob), absl::OkStatus());
  }
  EXPECT_EQ(Health(channel_), "SERVING") << "it is open to all";
  EXPECT_TRUE(Eventually([&] { return server_->stats().account_bytes == 0; }));
}

TEST_F(IdentityTest, WithoutATokenAnAddressDoesUnlessMoreIsAskedFor) {
  Start<server::IdentityBackend>();
  EXPECT_EQ(Forward(kNone), absl::OkStatus());
  EXPECT_EQ(Forward(kAlice), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnauthenticated(Forward({"Bearer tokenC"})));
}

TEST_F(IdentityTest, WithoutATokenFileWhatACallSaysOfTokensIsIgnored) {
  options_.identity.token_file.clear();
  Start<server::IdentityBackend>();
  EXPECT_EQ(Forward({"Bearer tokenC", "nonsense"}), absl::OkStatus());
  EXPECT_EQ(GetServerInfo({""}), absl::OkStatus());
}

TEST_F(IdentityTest, OnlyWhoBeganATransferJoinsIt) {
  Start<server::IdentityBackend>();
  Stream first(*stub_, kAlice);
  pb::ExchangeRequest header = Part(Header());
  header.mutable_header()->set_streams(2);
  first.Send(header);
  pb::ExchangeRequest join;
  join.mutable_join()->set_transfer(first.Read().admitted().transfer());
  for (const Headers& headers : {kBob, kNone}) {
    Stream other(*stub_, headers);
    other.Send(join);
    EXPECT_TRUE(absl::IsNotFound(other.End()));
  }
  // From wherever it calls.
  const auto elsewhere = pb::AttentionService::NewStub(
      Connect(absl::StrCat("127.0.0.1:", server_->port())));
  Stream second(*elsewhere, kAlice);
  second.Send(join);
  for (const int tensor : {1, 2, 3}) {
    for (const int index : {0, 1}) {
      (index == 0 ? first : second).Send(Part(Chunk(tensor, index)));
    }
  }
  first.Send(Part("inputs_sent { streams: 1 }"));
  EXPECT_EQ(first.End(), absl::OkStatus());
  EXPECT_EQ(second.End(), absl::OkStatus());
}

TEST_F(IdentityTest, ARevokedTokenIsRefusedAndNoOtherEverIs) {
  options_.identity.required = true;
  Start<server::IdentityBackend>();
  ASSERT_EQ(Forward(kAlice), absl::OkStatus());
  ASSERT_EQ(Forward(kBob), absl::OkStatus());
  const std::string alice = absl::StrCat("alice ", HashWord("tokenA"), "\n");
  // Torn, then gone, and neither changes anything.
  file_.Write(alice + "bob sha256:0123");
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Forward(kAlice), absl::OkStatus());
    EXPECT_EQ(Forward(kBob), absl::OkStatus());
    return absl::StrContains(log(), ":2: does not end with a newline");
  })) << log();
  EXPECT_THAT(log(), Not(HasSubstr("0123")));
  file_.Write(alice + absl::StrCat("carol ", HashWord("tokenC"), "\n"));
  absl::Status bob;
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Forward(kAlice), absl::OkStatus());
    bob = Forward(kBob);
    return !bob.ok();
  }));
  EXPECT_EQ(bob, Forward({"Bearer never"})) << "it does not tell";
  EXPECT_TRUE(absl::IsUnauthenticated(bob)) << bob;
  EXPECT_EQ(Forward({"Bearer tokenC"}), absl::OkStatus());
}

TEST_F(IdentityTest, CallsASecondOfAName) {
  WriteTokens(/*of_alice=*/" rate=0.0001");
  Start<server::IdentityBackend>();
  EXPECT_EQ(Forward(kAlice), absl::OkStatus());
  for (const absl::Status& status :
       {Forward(kAlice), GetServerInfo(kAlice), Exchange(kAlice, Header())}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--max_client_rate"));
    const auto delay = wire::RetryDelay(status);
    ASSERT_TRUE(delay.has_value());
    EXPECT_GT(*delay, absl::Hours(2));
    EXPECT_LE(*delay, absl::Seconds(10'000));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Forward(kBob), absl::OkStatus());
    EXPECT_EQ(Forward(kNone), absl::OkStatus());
  }
}

TEST_F(IdentityTest, MemoryOfAName) {
  int64_t bytes = 0;
  {
    server::ManualBackend* const device = Start<server::ManualBackend>();
    auto call = Begin(kBob, server::GoodForward());
    device->Await();
    bytes = server_->stats().account_bytes;
    device->FinishAll();
    EXPECT_EQ(call.get(), absl::OkStatus());
  }
  WriteTokens(absl::StrCat(" queued_bytes=", bytes + bytes / 2));
  server::ManualBackend* const device = Start<server::ManualBackend>();
  auto running = Begin(kAlice, server::GoodForward());
  device->Await();
  const absl::Status refused = Forward(kAlice);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("--max_client_queue_bytes"));
  EXPECT_TRUE(wire::RetryDelay(refused).has_value());
  auto other = Begin(kBob, server::GoodForward());
  EXPECT_TRUE(
      Eventually([&] { return server_->stats().queued_requests == 1; }));
  device->FinishAll();
  EXPECT_EQ(running.get(), absl::OkStatus());
  EXPECT_EQ(other.get(), absl::OkStatus());
  // Once its answer has left it may call again.
  EXPECT_TRUE(Eventually([&] { return Forward(kAlice).ok(); }));
}

TEST_F(IdentityTest, HighPriorityIsForWhomItWasGranted) {
  WriteTokens(/*of_alice=*/" priority=high");
  server::ManualBackend* const device = Start<server::ManualBackend>();
  std::vector<std::future<absl::Status>> calls;
  const auto send = [&](const Headers& headers, int64_t q_len,
                        pb::Priority priority) {
    pb::ForwardRequest request = RandomForward(q_len, 1, 8);
    request.mutable_options()->set_priority(priority);
    calls.push_back(Begin(headers, request));
    const int64_t queued = static_cast<int64_t>(calls.size()) - 1;
    EXPECT_TRUE(
        Eventually([&] { return server_->stats().queued_requests == queued; }));
  };
  send(kBob, 1, pb::PRIORITY_NORMAL);
  server::ManualBackend::Call running = device->Await();
  send(kBob, 2, pb::PRIORITY_NORMAL);
  send(kBob, 3, pb::PRIORITY_HIGH);
  send(kAlice, 4, pb::PRIORITY_HIGH);
  std::vector<int64_t> order;
  for (int i = 0; i < 3; ++i) {
    device->Finish(running);
    running = device->Await();
    order.push_back(running.q_lens[0]);
  }
  device->FinishAll();
  EXPECT_THAT(order, ElementsAre(4, 2, 3));
  for (auto& call : calls) EXPECT_EQ(call.get(), absl::OkStatus());
}

// attnd itself.

Ran RunWith(const std::vector<std::string>& flags) {
  std::vector<std::string> command = {ATTND_BINARY, "--port=0", "--device=cpu"};
  command.insert(command.end(), flags.begin(), flags.end());
  return RunProgram(command);
}

TEST(IdentityProgram, DoesNotStartWithoutAGoodFile) {
  const server::TempTokenFile file;
  const std::string flag = "--token_file=" + file.path();
  Ran ran = RunWith({flag});
  EXPECT_NE(ran.exit_status, 0);
  EXPECT_THAT(ran.output, HasSubstr("--token_file: " + file.path() + ": "));
  file.Write("alice hunter2hunter2\n");
  ran = RunWith({flag});
  EXPECT_EQ(ran.exit_status, 2);
  EXPECT_THAT(ran.output, HasSubstr(file.path() + ":1: the second word is"));
  EXPECT_THAT(ran.output, Not(HasSubstr("hunter2")));
}

TEST(IdentityProgram, RefusesFlagsThatMakeNoSense) {
  for (const std::string flag :
       {"--require_identity", "--token_file=", "--max_client_rate=-1",
        "--max_client_rate=nan", "--max_client_queue_bytes=-1",
        "--max_client_queue_flops=-1"}) {
    const Ran ran = RunWith({flag});
    EXPECT_EQ(ran.exit_status, 2) << flag;
    EXPECT_THAT(ran.output, HasSubstr(flag.substr(0, flag.find('='))));
  }
}

TEST(IdentityProgram, CountsWhatItRefusesAndSaysNoTokenAnywhere) {
  const server::TempTokenFile file;
  file.Write(absl::StrCat("alice ", HashWord("tokenA"), " rate=0.0001\n"));
  auto server = ServerProcess::Start(
      ATTND_BINARY, {"--token_file=" + file.path(), "--require_identity",
                     "--metrics_port=0", "--memory_limit=128MiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = pb::AttentionService::NewStub(Connect((*server)->tcp()));
  pb::GetServerInfoResponse response;
  for (const Headers& headers :
       {kNone, Headers{"Bearer hunter2"}, kAlice, kAlice}) {
    (void)stub->GetServerInfo(ContextWith(headers).get(),
                              pb::GetServerInfoRequest(), &response);
  }
  for (const char* reason : {"no_identity", "token", "max_client_rate"}) {
    EXPECT_EQ((*server)->Metric(absl::StrCat(
                  "attnd_refused_calls_total{reason=\"", reason, "\"}")),
              1)
        << reason;
  }
  const std::string said = (*server)->log() + (*server)->Metrics();
  EXPECT_THAT(said, Not(HasSubstr("hunter2")));
  EXPECT_THAT(said, Not(HasSubstr("tokenA")));
  EXPECT_THAT(said, Not(HasSubstr(HashWord("tokenA").substr(7, 8))));
}

}  // namespace
}  // namespace attnd::testing
