// The server library with devices that a test steps by hand, over real gRPC.

#include "server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/wire/status.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"
#include "tests/server/fakes/apart_backend.h"
#include "tests/server/fakes/fault_backend.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/late_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/slow_backend.h"

namespace attnd::testing {
namespace {

using server::ApartBackend;
using server::FaultBackend;
using server::IdentityBackend;
using server::LateBackend;
using server::ManualBackend;
using server::Server;
using server::ServerOptions;
using server::SlowBackend;

constexpr char kService[] = "attn.v1.AttentionService";

// One lane and no groups: what begins and what waits is plain.
ServerOptions OneAtATime() {
  ServerOptions options;
  options.memory_limit_bytes = 256 << 20;
  options.scheduler.lanes_per_device = 1;
  options.scheduler.max_batch_requests = 1;
  return options;
}

class ServerTest : public ::testing::Test {
 protected:
  // Starts a server over new devices, which it owns; the last one is returned.
  template <typename Device, typename... Arguments>
  Device* Start(const ServerOptions& options, Arguments... arguments) {
    auto device = std::make_unique<Device>(arguments...);
    Device* kept = device.get();
    devices_.push_back(std::move(device));
    auto server = Server::Start(options, std::move(devices_));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = Connect(absl::StrCat("127.0.0.1:", server_->port()));
    return kept;
  }

  std::unique_ptr<PendingForward> Send() {
    return std::make_unique<PendingForward>(channel_, server::GoodForward());
  }

  // Polled: the scheduler tells nobody.
  bool Queued(int64_t requests) {
    return Eventually(
        [&] { return server_->stats().queued_requests == requests; });
  }
  bool Running(int64_t requests) {
    return Eventually(
        [&] { return server_->stats().running_requests == requests; });
  }
  bool IsOutOfService() {
    return Eventually([&] { return Health(channel_) == "NOT_SERVING"; }) &&
           Health(channel_, kService) == "NOT_SERVING";
  }

  std::vector<std::unique_ptr<Backend>> devices_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ServerTest, ServesOnTcpAndOnAUnixSocket) {
  const TempFolder folder;
  ServerOptions options = OneAtATime();
  options.unix_socket = folder.File("socket");
  Start<IdentityBackend>(options);
  for (const auto& channel :
       {channel_, Connect("unix:" + options.unix_socket)}) {
    const attn::v1::ForwardRequest request = RandomForward(16, 2, 8);
    attn::v1::ForwardResponse response;
    const absl::Status status = Forward(channel, request, response);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(response.o().data(), request.q().data());
    EXPECT_EQ(response.report().batch_requests(), 1);
    EXPECT_GT(response.report().flops(), 0);
    EXPECT_GT(response.report().phases().queue_ns(), 0);
    EXPECT_EQ(Health(channel), "SERVING");
    EXPECT_EQ(Health(channel, kService), "SERVING");
  }
}

TEST_F(ServerTest, SaysWhatItIs) {
  Start<IdentityBackend>(OneAtATime());
  const auto stub = attn::v1::AttentionService::NewStub(channel_);
  grpc::ClientContext context;
  attn::v1::GetServerInfoResponse info;
  ASSERT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.server_instance_id().size(), 32);
  EXPECT_FALSE(info.version().empty());
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_TRUE(info.devices(0).in_service());
  EXPECT_GT(info.limits().max_message_bytes(), 0);
  EXPECT_EQ(info.limits().memory_limit_bytes(), 256 << 20);
  EXPECT_EQ(info.limits().max_head_dim(), 256);
  EXPECT_EQ(info.limits().max_request_sequences(), 16384);
}

TEST_F(ServerTest, AFullQueueIsResourceExhaustedWithARetryDelay) {
  ServerOptions options = OneAtATime();
  options.scheduler.max_queue_requests = 1;
  auto* device = Start<ManualBackend>(options);
  auto running = Send();
  device->Await();
  auto queued = Send();
  ASSERT_TRUE(Queued(1));
  auto refused = Send();
  EXPECT_TRUE(absl::IsResourceExhausted(refused->Wait())) << refused->Wait();
  EXPECT_TRUE(wire::RetryDelay(refused->Wait()).has_value());
  device->FinishAll();
  EXPECT_TRUE(running->Wait().ok()) << running->Wait();
  EXPECT_TRUE(queued->Wait().ok()) << queued->Wait();
}

TEST_F(ServerTest, AnAnswerThatCannotBeSentIsRefusedAndNotComputed) {
  ServerOptions options = OneAtATime();
  options.max_message_bytes = 5120;
  auto* device = Start<ManualBackend>(options);
  device->FinishAll();
  // Small in f16, larger than a message in f32: dQ, dK and dV of 1 KiB each.
  attn::v1::BackwardRequest request;
  attn::v1::BackwardResponse response;
  for (auto* tensor :
       {request.mutable_q(), request.mutable_k(), request.mutable_v(),
        request.mutable_o(), request.mutable_d_o()}) {
    tensor->set_dtype(attn::v1::DATA_TYPE_F16);
    for (const int64_t size : {1, 32, 1, 8}) tensor->add_shape(size);
    tensor->set_data(std::string(32 * 8 * 2, '\0'));
  }
  attn::v1::Tensor& lse = *request.mutable_lse();
  lse.set_dtype(attn::v1::DATA_TYPE_F32);
  for (const int64_t size : {1, 1, 32}) lse.add_shape(size);
  lse.set_data(std::string(32 * 4, '\0'));
  EXPECT_TRUE(Backward(channel_, request, response).ok());
  EXPECT_TRUE(device->HasBegun());
  device->Await();
  for (auto* output :
       {request.mutable_dq(), request.mutable_dk(), request.mutable_dv()}) {
    output->set_dtype(attn::v1::DATA_TYPE_F32);
  }
  const absl::Status status = Backward(channel_, request, response);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("(dq 1024, dk 1024, dv 1024), more than the "
                                   "largest message of 5120"));
  EXPECT_FALSE(device->HasBegun());
}

TEST_F(ServerTest, HeadersGoAheadOfAnAnswerThatTakesLong) {
  auto* device = Start<LateBackend>(OneAtATime());
  const auto stub = attn::v1::AttentionService::NewStub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub->AsyncForward(&context, server::GoodForward(), &queue);
  int headers = 0, answer = 0;
  call->ReadInitialMetadata(&headers);
  attn::v1::ForwardResponse response;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  // The device is not done before they are here.
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(tag, &headers);
  EXPECT_TRUE(ok);
  device->Finish();
  call->Finish(&response, &status, &answer);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(tag, &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.has_o());
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

// A lane that answers runs beside the thread that sends headers ahead, and gRPC
// ends the process if they go twice.
TEST_F(ServerTest, HeadersGoOnceWhoeverIsFirst) {
  ServerOptions options;
  options.memory_limit_bytes = 256 << 20;
  Start<ApartBackend>(options);
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 500; ++call) {
        const attn::v1::ForwardRequest request = RandomForward(16, 2, 8);
        attn::v1::ForwardResponse response;
        const absl::Status status = Forward(channel_, request, response);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(response.o().data(), request.q().data());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(ServerTest, DrainFinishesWhatWasAdmittedAndRefusesTheRest) {
  auto* device = Start<ManualBackend>(OneAtATime());
  auto running = Send();
  device->Await();
  auto first = Send();
  auto second = Send();
  ASSERT_TRUE(Queued(2));
  auto drained = std::async(
      std::launch::async, [this] { return server_->Drain(absl::Seconds(60)); });
  EXPECT_TRUE(IsOutOfService());
  // Health turns a moment before the scheduler refuses, so the first of these
  // may still be admitted.
  std::vector<std::unique_ptr<PendingForward>> late;
  const auto last_is_admitted = [&] {
    return server_->stats().queued_requests ==
           2 + static_cast<int64_t>(late.size());
  };
  do {
    late.push_back(Send());
    EXPECT_TRUE(Eventually([&] {
      return last_is_admitted() || late.back()->WaitFor(absl::ZeroDuration());
    }));
  } while (last_is_admitted());
  EXPECT_TRUE(absl::IsUnavailable(late.back()->Wait())) << late.back()->Wait();
  device->FinishAll();
  EXPECT_TRUE(running->Wait().ok()) << running->Wait();
  EXPECT_TRUE(first->Wait().ok()) << first->Wait();
  EXPECT_TRUE(second->Wait().ok()) << second->Wait();
  drained.get();
  EXPECT_EQ(server_->stats().account_bytes, 0);
}

TEST_F(ServerTest, DrainEndsWhatIsLeftWithUnavailable) {
  Start<SlowBackend>(OneAtATime(), absl::Hours(1));
  auto running = Send();
  auto queued = Send();
  ASSERT_TRUE(Queued(1));
  // Not for the hour that the first takes.
  server_->Drain(absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsUnavailable(running->Wait())) << running->Wait();
  EXPECT_TRUE(absl::IsUnavailable(queued->Wait())) << queued->Wait();
}

TEST_F(ServerTest, ACancelledRequestFreesItsLane) {
  Start<SlowBackend>(OneAtATime(), absl::Hours(1));
  auto slow = Send();
  ASSERT_TRUE(Running(1));
  slow->Cancel();
  EXPECT_TRUE(absl::IsCancelled(slow->Wait())) << slow->Wait();
  EXPECT_TRUE(Running(0));
}

TEST_F(ServerTest, APassedDeadlineFreesItsLane) {
  Start<SlowBackend>(OneAtATime(), absl::Hours(1));
  PendingForward slow(channel_, server::GoodForward(), absl::Milliseconds(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(slow.Wait())) << slow.Wait();
  EXPECT_TRUE(Eventually([&] {
    return server_->stats().running_requests == 0 &&
           server_->stats().account_bytes == 0;
  }));
}

TEST_F(ServerTest, ADeviceFaultTakesTheServerOutOfService) {
  auto* device = Start<FaultBackend>(OneAtATime());
  EXPECT_TRUE(Send()->Wait().ok());
  device->Fail(FaultBackend::Stage::kRun, absl::InternalError("fell over"));
  auto hit = Send();
  EXPECT_FALSE(hit->Wait().ok());
  EXPECT_TRUE(IsOutOfService());
  EXPECT_TRUE(absl::IsUnavailable(Send()->Wait()));
}

TEST_F(ServerTest, TellsTheLogWhyADeviceLeft) {
  ServerOptions options = OneAtATime();
  std::promise<std::string> told;
  options.log = [&told](const LogLine& line) {
    EXPECT_EQ(line.level, LogLevel::kError);
    told.set_value(line.message);
  };
  auto* device = Start<FaultBackend>(options);
  device->Fail(FaultBackend::Stage::kRun,
               absl::InternalError("an illegal address"));
  EXPECT_FALSE(Send()->Wait().ok());
  EXPECT_THAT(told.get_future().get(),
              ::testing::MatchesRegex(
                  "device [a-z]+:0 .*is out of service: .*an illegal "
                  "address.*"));
}

TEST_F(ServerTest, OneDeviceOfTwoIsEnough) {
  auto broken = std::make_unique<FaultBackend>(0);
  broken->Fail(FaultBackend::Stage::kRun, absl::InternalError("fell over"));
  devices_.push_back(std::move(broken));
  Start<IdentityBackend>(OneAtATime(), 1);
  // Until the broken one has had its turn.
  EXPECT_TRUE(Eventually([&] {
    std::vector<std::unique_ptr<PendingForward>> calls;
    for (int i = 0; i < 4; ++i) calls.push_back(Send());
    return !server_->stats().device_in_service[0];
  }));
  EXPECT_EQ(Health(channel_), "SERVING");
  EXPECT_TRUE(Send()->Wait().ok());
}

TEST_F(ServerTest, AnAddressThatIsTakenIsUnavailable) {
  Start<IdentityBackend>(OneAtATime());
  ServerOptions options = OneAtATime();
  options.port = server_->port();
  std::vector<std::unique_ptr<Backend>> devices;
  devices.push_back(std::make_unique<IdentityBackend>());
  const auto second = Server::Start(options, std::move(devices));
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()),
              ::testing::HasSubstr(absl::StrCat(options.port)));
}

TEST_F(ServerTest, ServesAgainAfterAnother) {
  for (int i = 0; i < 3; ++i) {
    Start<IdentityBackend>(OneAtATime());
    EXPECT_TRUE(Send()->Wait().ok());
    server_ = nullptr;
  }
}

}  // namespace
}  // namespace attnd::testing
