// Exchanges between the client library and attnd in a process of its own, over
// connections that break.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "attn/v1/attention.grpc.pb.h"
#include "attnd/client.h"
#include "grpcpp/grpcpp.h"
#include "tests/client/live_server.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/reset_proxy.h"

namespace attnd::testing {
namespace {

using client::CallOptions;
using client::Client;
using client::ClientOptions;
using client::Example;
using client::TransportKind;
namespace v1 = ::attn::v1;

constexpr int64_t kDim = 256;
constexpr int64_t kTokens = (int64_t{24} << 20) / (kDim * 4);
constexpr int64_t kBytes = kTokens * kDim * 4;  // of Q, and of O
constexpr int kConnections = 3;

// How many random runs: ATTND_EXCHANGE_RUNS, or as many as a suite has time
// for.
int Runs() {
  const char* runs = std::getenv("ATTND_EXCHANGE_RUNS");
  return runs != nullptr ? std::atoi(runs) : kSanitized ? 5 : 25;
}

class ExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start(
        ATTND_BINARY, {"--metrics_port=0", "--memory_limit=1GiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = std::stoi(server_->tcp().substr(server_->tcp().find(':') + 1));
  }

  // A call over connections of its own, by way of `proxy`.
  absl::StatusOr<client::Report> Call(const ResetProxy& proxy,
                                      const Example& example) {
    ClientOptions options;
    options.connections = kConnections;
    options.max_attempts = 1;
    auto client = Client::Create(proxy.target(), options);
    if (!client.ok()) return client.status();
    CallOptions how;
    how.timeout = kHangLimit;
    how.transport = TransportKind::kStream;
    return (*client)->Forward(example.call, how);
  }

  void ExpectNothingHeld() {
    EXPECT_TRUE(Eventually([&] {
      return server_->Metric("attnd_account_bytes") == 0 &&
             server_->Metric("attnd_upload_bytes") == 0;
    })) << server_->Metrics();
  }

  std::unique_ptr<ServerProcess> server_;
  int port_ = 0;
  std::mt19937 random_{11};
};

TEST_F(ExchangeTest, GoesOverAsManyConnectionsAsThereAre) {
  ResetProxy proxy(port_);
  const Example example(kTokens, kDim);
  const auto report = Call(proxy, example);
  ASSERT_TRUE(report.ok()) << report.status();
  example.ExpectAnswered();
  EXPECT_EQ(report->transport, TransportKind::kStream);
  EXPECT_EQ(report->streams, 2 * kConnections);
  EXPECT_EQ(proxy.connections(), kConnections);
  ExpectNothingHeld();
}

TEST_F(ExchangeTest, JoinedConnectionsThatBreakCostNoByte) {
  int resets = 0;
  for (int run = 0; run < Runs(); ++run) {
    ResetProxy proxy(port_);
    const bool back = random_() % 3 == 0;
    proxy.ResetAfter(1, random_() % (kBytes / 2), back);
    if (random_() % 2 == 0) {
      proxy.ResetAfter(2, random_() % (kBytes / 2), random_() % 3 == 0);
    }
    const Example example(kTokens, kDim);
    const auto report = Call(proxy, example);
    ASSERT_TRUE(report.ok()) << report.status() << " in run " << run;
    example.ExpectAnswered();
    resets += proxy.resets();
  }
  // Connections that carried less than their limit were not reset; how much
  // each carries is up to the machine.
  EXPECT_GT(resets, 0);
  ExpectNothingHeld();
}

TEST_F(ExchangeTest, AFirstConnectionThatBreaksEndsItAndLeavesNothing) {
  int failed = 0;
  for (int run = 0; run < Runs(); ++run) {
    ResetProxy proxy(port_);
    proxy.ResetAfter(0, random_() % (kBytes / 3), random_() % 3 == 0);
    const Example example(kTokens, kDim);
    const auto report = Call(proxy, example);
    if (report.ok()) {
      example.ExpectAnswered();
      EXPECT_EQ(proxy.resets(), 0);
      continue;
    }
    EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable)
        << report.status();
    ++failed;
  }
  EXPECT_GT(failed, 0);
  ExpectNothingHeld();
}

// Memory that nobody touches.
class Untouched {
 public:
  explicit Untouched(int64_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Untouched() { munmap(memory_, bytes_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

  void* data() const { return memory_; }

 private:
  const int64_t bytes_;
  void* const memory_;
};

constexpr int64_t kHeads = 16;

// A forward of 2 GiB that holds its memory as long as its call is there.
class Holder {
 public:
  Holder(const std::string& target, int64_t tokens)
      : stub_(v1::AttentionService::NewStub(
            grpc::CreateChannel(target, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Exchange(&context_)) {
    v1::ExchangeRequest request;
    auto& forward = *request.mutable_header()->mutable_forward();
    for (auto* tensor :
         {forward.mutable_q(), forward.mutable_k(), forward.mutable_v()}) {
      tensor->set_dtype(v1::DATA_TYPE_F32);
      const int64_t length =
          tensor == forward.mutable_q() ? tokens : tokens / 2;
      for (int64_t dim : {int64_t{1}, length, kHeads, kDim}) {
        tensor->add_shape(dim);
      }
      tensor->mutable_streamed();
    }
    forward.mutable_o()->mutable_streamed();
    forward.mutable_lse()->mutable_streamed();
    v1::ExchangeResponse response;
    admitted_ = stream_->Write(request) && stream_->Read(&response) &&
                response.has_admitted();
    if (!admitted_) refusal_ = stream_->Finish();
  }
  ~Holder() {
    context_.TryCancel();
    if (admitted_) (void)stream_->Finish();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  bool admitted() const { return admitted_; }
  const grpc::Status& refusal() const { return refusal_; }

 private:
  std::unique_ptr<v1::AttentionService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::ExchangeRequest, v1::ExchangeResponse>>
      stream_;
  bool admitted_ = false;
  grpc::Status refusal_;
};

// A request is admitted or refused by what it says of itself.
TEST_F(ExchangeTest, AFullServerIsSentNoTensor) {
  auto server = ServerProcess::Start(
      ATTND_BINARY, {"--metrics_port=0", "--memory_limit=8GiB"});
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  port_ = std::stoi(server_->tcp().substr(server_->tcp().find(':') + 1));

  const int64_t tokens = (int64_t{1} << 30) / (kHeads * kDim * 4);
  const Untouched q(1 << 30), k(1 << 29), v(1 << 29), o(1 << 30);
  ClientOptions options;
  options.max_attempts = 1;
  client::ForwardCall call;
  call.q = {client::DType::kF32, {1, tokens, kHeads, kDim}, q.data()};
  call.k = {client::DType::kF32, {1, tokens / 2, kHeads, kDim}, k.data()};
  call.v = {client::DType::kF32, {1, tokens / 2, kHeads, kDim}, v.data()};
  call.o = {client::DType::kF32, {1, tokens, kHeads, kDim}, o.data()};
  CallOptions how;
  how.timeout = kHangLimit;
  how.transport = TransportKind::kStream;
  {
    const Holder full(server_->tcp(), tokens);
    ASSERT_TRUE(full.admitted()) << full.refusal().error_message();
    const ResetProxy proxy(port_);
    auto client = Client::Create(proxy.target(), options);
    ASSERT_TRUE(client.ok()) << client.status();
    const auto report = (*client)->Forward(call, how);
    EXPECT_EQ(report.status().code(), absl::StatusCode::kResourceExhausted)
        << report.status();
    EXPECT_GT(proxy.sent(), 0);
    EXPECT_LE(proxy.sent(), 128 << 10);
  }
  ExpectNothingHeld();
}

}  // namespace
}  // namespace attnd::testing
