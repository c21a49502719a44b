// The client over real gRPC, against a server in this process that speaks
// plain protobuf.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "attn/v1/attention.grpc.pb.h"
#include "attnd/client.h"
#include "base/descriptor.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/status.h"
#include "tests/hang_limit.h"

namespace attnd::client {
namespace {

namespace v1 = ::attn::v1;

// Answers O = Q, LSE = 1, 2, 3, ...; gradients equal to Q, K and V.
class EchoService final : public v1::AttentionService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Forward(grpc::CallbackServerContext* context,
                                    const v1::ForwardRequest* request,
                                    v1::ForwardResponse* response) override {
    {
      std::lock_guard<std::mutex> lock(mutex);
      peers.insert(context->peer());
    }
    if (!failure.ok()) {
      grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(wire::ToGrpcStatus(failure));
      return reactor;
    }
    if (request->o().want()) *response->mutable_o() = request->q();
    if (request->lse().want()) {
      v1::Tensor& lse = *response->mutable_lse();
      lse.set_dtype(v1::DATA_TYPE_F32);
      for (const int i : {0, 2, 1}) lse.add_shape(request->q().shape(i));
      std::vector<float> values(lse.shape(0) * lse.shape(1) * lse.shape(2));
      std::iota(values.begin(), values.end(), 1.0f);
      lse.set_data(values.data(), values.size() * sizeof(float));
    }
    response->mutable_report()->set_device("echo" + padding);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::mutex mutex;
  std::set<std::string> peers;
  absl::Status failure;  // of every call, when not OK
  std::string padding;   // makes responses longer
};

class GrpcClientTest : public ::testing::Test {
 protected:
  GrpcClientTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    target_ = "127.0.0.1:" + std::to_string(port);
  }

  EchoService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
};

// A call of one float tensor, with its memory.
struct Example {
  explicit Example(int64_t tokens)
      : q(tokens * 2 * 4), o(q.size(), -1), lse(tokens * 2, -1) {
    std::iota(q.begin(), q.end(), 0.5f);
    const std::vector<int64_t> shape = {1, tokens, 2, 4};
    call.q = call.k = call.v = {DType::kF32, shape, q.data()};
    call.o = {DType::kF32, shape, o.data()};
    call.lse = {DType::kF32, {1, 2, tokens}, lse.data()};
  }

  std::vector<float> q, o, lse;
  ForwardCall call;
};

TEST_F(GrpcClientTest, ForwardBringsOutputsIntoTheCallersMemory) {
  auto client = Client::Create(target_);
  ASSERT_TRUE(client.ok()) << client.status();
  for (const int64_t tokens : {1, 5, 100'000}) {
    Example example(tokens);
    const auto report = (*client)->Forward(example.call, {testing::kHangLimit});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(example.o, example.q);
    EXPECT_EQ(example.lse.front(), 1);
    EXPECT_EQ(example.lse.back(), tokens * 2);
    EXPECT_EQ(report->device, "echo");
    EXPECT_EQ(report->attempts, 1);
    EXPECT_GT(report->total, absl::ZeroDuration());
  }
}

TEST_F(GrpcClientTest, ConnectionsAreDistinctAndTakenInTurn) {
  ClientOptions options;
  options.connections = 3;
  auto client = Client::Create(target_, options);
  // Another client shares none of them.
  auto other = Client::Create(target_);
  ASSERT_TRUE(client.ok() && other.ok());
  Example example(5);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE((*client)->Forward(example.call, {testing::kHangLimit}).ok());
  }
  EXPECT_EQ(service_.peers.size(), 3);
  ASSERT_TRUE((*other)->Forward(example.call, {testing::kHangLimit}).ok());
  EXPECT_EQ(service_.peers.size(), 4);
}

TEST_F(GrpcClientTest, BusyPollingFindsAnswersAndErrors) {
  // Shorter than any call, and longer.
  for (const absl::Duration time : {absl::Microseconds(1), absl::Hours(1)}) {
    ClientOptions options;
    options.busy_poll = time;
    auto client = Client::Create(target_, options);
    ASSERT_TRUE(client.ok()) << client.status();
    Example example(5);
    service_.failure = absl::OkStatus();
    auto report = (*client)->Forward(example.call, {testing::kHangLimit});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(example.o, example.q);
    service_.failure = absl::InternalError("no");
    report = (*client)->Forward(example.call, {testing::kHangLimit});
    EXPECT_EQ(report.status(), service_.failure);
  }
}

TEST_F(GrpcClientTest, BusyPollingEndsAtTheDeadline) {
  // Connects, and says nothing.
  const Descriptor silent(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string name = absl::StrCat("attnd silent ", getpid());
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(name.size() + 1, sizeof(address.sun_path));
  name.copy(address.sun_path + 1, name.size());
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent.get(), 1), 0);
  ClientOptions options;
  options.busy_poll = absl::Hours(1);
  auto client = Client::Create("unix-abstract:" + name, options);
  ASSERT_TRUE(client.ok()) << client.status();
  Example example(5);
  const auto report =
      (*client)->Forward(example.call, {absl::Milliseconds(20)});
  EXPECT_TRUE(absl::IsDeadlineExceeded(report.status())) << report.status();
}

TEST_F(GrpcClientTest, TheServersStatusArrivesWithItsDetails) {
  service_.failure = wire::FieldError("k.shape", "is odd");
  auto client = Client::Create(target_);
  ASSERT_TRUE(client.ok()) << client.status();
  Example example(5);
  const auto report = (*client)->Forward(example.call, {testing::kHangLimit});
  EXPECT_EQ(report.status(), service_.failure);
  ASSERT_EQ(wire::FieldViolations(report.status()).size(), 1);
  EXPECT_EQ(wire::FieldViolations(report.status())[0].field, "k.shape");
}

TEST_F(GrpcClientTest, AResponseOverTheLimitIsRefusedAndNotTriedAgain) {
  ClientOptions options;
  options.max_message_bytes = 1000;
  auto client = Client::Create(target_, options);
  ASSERT_TRUE(client.ok()) << client.status();
  Example example(8);
  example.call.k = example.call.v = {};
  example.call.o = {};
  ASSERT_LT(example.q.size() * sizeof(float), 1000);
  service_.padding.assign(2000, 'x');
  const auto report = (*client)->Forward(example.call, {testing::kHangLimit});
  EXPECT_TRUE(absl::IsResourceExhausted(report.status())) << report.status();
}

TEST_F(GrpcClientTest, NoServerIsUnavailableAfterEveryAttempt) {
  server_->Shutdown();
  ClientOptions options;
  options.initial_backoff = absl::Milliseconds(1);
  options.max_attempts = 3;
  auto client = Client::Create(target_, options);
  ASSERT_TRUE(client.ok()) << client.status();
  Example example(5);
  const auto report = (*client)->Forward(example.call, {testing::kHangLimit});
  EXPECT_TRUE(absl::IsUnavailable(report.status())) << report.status();
}

TEST_F(GrpcClientTest, AThousandCallsInFlightAreAllAnswered) {
  ClientOptions options;
  options.connections = 2;
  auto client = Client::Create(target_, options);
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<Example> examples;
  for (int i = 0; i < 1000; ++i) examples.emplace_back(3 + i % 400);
  // The first callback blocks, so that nothing else is answered until all
  // calls are in flight.
  absl::Notification all_started, all_done;
  std::atomic<int> answered{0};
  for (Example& example : examples) {
    (*client)->ForwardAsync(example.call, {testing::kHangLimit},
                            [&](absl::StatusOr<Report> report) {
                              EXPECT_TRUE(report.ok()) << report.status();
                              all_started.WaitForNotification();
                              if (++answered == 1000) all_done.Notify();
                            });
  }
  EXPECT_EQ(answered, 0);
  all_started.Notify();
  all_done.WaitForNotification();
  for (const Example& example : examples) EXPECT_EQ(example.o, example.q);
}

}  // namespace
}  // namespace attnd::client
