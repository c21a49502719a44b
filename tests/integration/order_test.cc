// Who gets the device, over real gRPC: the order in which kernels begin, on a
// device that the test steps by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/program/devices.h"
#include "server/server.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/fakes/manual_backend.h"

namespace attnd::testing {
namespace {

using server::ManualBackend;
using ::testing::ElementsAre;

class OrderTest : public ::testing::Test {
 protected:
  using Call = std::unique_ptr<PendingForward>;

  void Start(const server::SchedulerOptions& scheduler) {
    server::ServerOptions options;
    options.host = host_;
    options.allow_insecure_bind = true;
    options.memory_limit_bytes = 256 << 20;
    options.unix_socket = folder_.File("socket");
    options.scheduler = scheduler;
    auto device = std::make_unique<ManualBackend>();
    device_ = device.get();
    std::vector<std::unique_ptr<Backend>> devices;
    devices.push_back(std::move(device));
    auto server = server::Server::Start(options, std::move(devices));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // One lane and no groups, and the lane is taken: what comes now waits.
  void StartBusy() {
    server::SchedulerOptions one_at_a_time;
    one_at_a_time.lanes_per_device = 1;
    one_at_a_time.max_batch_requests = 1;
    Start(one_at_a_time);
    first_ = Send(Tcp(), 1);
    running_ = device_->Await();
  }

  // One lane, and calls of kSlicedLen queries run in three parts.
  static constexpr int64_t kSlicedLen = 1000;
  void StartSliced() {
    server::SchedulerOptions options;
    options.lanes_per_device = 1;
    options.small_request_flops = 1e6;
    options.max_batch_flops = 1e7;
    options.slice_time = absl::Milliseconds(1);
    Start(options);
    device_->RunInParts(kSlicedLen, 3);
  }

  std::shared_ptr<grpc::Channel> Tcp() const {
    return Connect(absl::StrCat("127.0.0.1:", server_->port()));
  }
  std::shared_ptr<grpc::Channel> Unix() const {
    return Connect("unix:" + folder_.File("socket"));
  }
  // Queries tell requests apart.
  static Call Send(
      const std::shared_ptr<grpc::Channel>& channel, int64_t q_len,
      attn::v1::Priority priority = attn::v1::PRIORITY_UNSPECIFIED) {
    attn::v1::ForwardRequest request = RandomForward(q_len, 1, 8);
    request.mutable_options()->set_priority(priority);
    return std::make_unique<PendingForward>(channel, std::move(request));
  }
  // The same, and waits until it is in the queue, behind what came before.
  void Queue(const std::shared_ptr<grpc::Channel>& channel, int64_t q_len,
             attn::v1::Priority priority = attn::v1::PRIORITY_UNSPECIFIED) {
    queued_.push_back(Send(channel, q_len, priority));
    ASSERT_TRUE(QueueHolds(queued_.size()));
  }
  bool QueueHolds(size_t requests) const {
    return Eventually([&] {
      return server_->stats().queued_requests == static_cast<int64_t>(requests);
    });
  }
  // Lets all of them run, one after another; their queries, in that order.
  std::vector<int64_t> RunAll() {
    std::vector<int64_t> order;
    for (size_t i = 0; i < queued_.size(); ++i) {
      device_->Finish(running_);
      running_ = device_->Await();
      order.push_back(running_.q_lens.at(0));
    }
    device_->FinishAll();
    for (const Call& call : queued_) {
      EXPECT_TRUE(call->Wait().ok()) << call->Wait();
    }
    return order;
  }

  const TempFolder folder_;
  std::string host_ = "127.0.0.1";
  ManualBackend* device_ = nullptr;
  std::unique_ptr<server::Server> server_;
  ManualBackend::Call running_;
  // The calls go first: they need the server to end.
  Call first_;
  std::vector<Call> queued_;
};

// A client is an address, not a connection.
TEST_F(OrderTest, ManyConnectionsGetNoMoreThanOne) {
  StartBusy();
  // 2 to 9 from a connection each, which came first; 10 to 13 from another
  // address.
  for (int64_t q_len = 2; q_len < 10; ++q_len) Queue(Tcp(), q_len);
  const auto other = Unix();
  for (int64_t q_len = 10; q_len < 14; ++q_len) Queue(other, q_len);
  EXPECT_THAT(RunAll(), ElementsAre(2, 10, 3, 11, 4, 12, 5, 13, 6, 7, 8, 9));
}

// One socket takes connections of both kinds.
TEST_F(OrderTest, AClientIsAnAddressOfIPv4OrIPv6) {
  host_ = "::";
  StartBusy();
  const std::string ipv6 = absl::StrCat("[::1]:", server_->port());
  if (Health(Connect(ipv6)) != "SERVING") {
    device_->FinishAll();
    GTEST_SKIP() << "this machine has no IPv6";
  }
  for (int64_t q_len = 2; q_len < 6; ++q_len) Queue(Tcp(), q_len);
  for (int64_t q_len = 6; q_len < 8; ++q_len) Queue(Connect(ipv6), q_len);
  EXPECT_THAT(RunAll(), ElementsAre(2, 6, 3, 7, 4, 5));
}

TEST_F(OrderTest, HighPriorityGoesFirstButLowNeverStarves) {
  constexpr int kHigh = 40;
  constexpr int64_t kLowLen = 2, kHighLen = 3;
  StartBusy();
  const auto channel = Tcp();
  Queue(channel, kLowLen, attn::v1::PRIORITY_LOW);
  for (int i = 0; i < kHigh; ++i) {
    Queue(channel, kHighLen, attn::v1::PRIORITY_HIGH);
  }
  const std::vector<int64_t> order = RunAll();
  const auto low = std::find(order.begin(), order.end(), kLowLen);
  EXPECT_GT(low - order.begin(), 0);
  EXPECT_LT(low - order.begin(), kHigh / 2);
}

TEST_F(OrderTest, SmallRequestsPassLargeOnes) {
  // As attnd on a processor, which has two lanes.
  Start(server::SchedulerDefaults(server::DeviceOptions::Kind::kCpu));
  const auto channel = Tcp();
  const Call large = Send(channel, 4000);
  const ManualBackend::Call running = device_->Await();
  ASSERT_THAT(running.q_lens, ElementsAre(4000));
  // The other lane is free, but not for this.
  const Call larger = Send(channel, 4001);
  ASSERT_TRUE(QueueHolds(1));
  for (int i = 0; i < 3; ++i) {
    const Call small = Send(channel, 300);
    const ManualBackend::Call passing = device_->Await();
    EXPECT_THAT(passing.q_lens, ElementsAre(300));
    device_->Finish(passing);
    EXPECT_TRUE(small->Wait().ok()) << small->Wait();
  }
  EXPECT_FALSE(large->WaitFor(absl::ZeroDuration()));
  device_->FinishAll();
  EXPECT_TRUE(large->Wait().ok()) << large->Wait();
  EXPECT_TRUE(larger->Wait().ok()) << larger->Wait();
}

TEST_F(OrderTest, CancellingReachesTheKernelAndTheNextOneRuns) {
  StartBusy();
  Queue(Tcp(), 2);
  EXPECT_FALSE(running_.tokens.at(0)->cancelled());
  first_->Cancel();
  EXPECT_TRUE(Eventually([&] { return running_.tokens.at(0)->cancelled(); }));
  EXPECT_TRUE(absl::IsCancelled(first_->Wait())) << first_->Wait();
  // The lane is busy until the kernel has heard of it.
  EXPECT_FALSE(device_->HasBegun());
  EXPECT_THAT(RunAll(), ElementsAre(2));
}

TEST_F(OrderTest, ALargeCallIsPausedForAnotherClient) {
  StartSliced();
  const Call large = Send(Unix(), kSlicedLen);
  const ManualBackend::Call first = device_->Await();
  const Call other = Send(Tcp(), 300);
  ASSERT_TRUE(QueueHolds(1));
  device_->FinishAndPause(first);
  const ManualBackend::Call between = device_->Await();
  EXPECT_THAT(between.q_lens, ElementsAre(300));
  device_->Finish(between);
  EXPECT_TRUE(other->Wait().ok()) << other->Wait();
  EXPECT_FALSE(large->WaitFor(absl::ZeroDuration()));
  const ManualBackend::Call second = device_->Await();
  EXPECT_THAT(second.q_lens, ElementsAre(kSlicedLen));
  EXPECT_EQ(second.part, 1);
  device_->FinishAll();
  EXPECT_TRUE(large->Wait().ok()) << large->Wait();
}

TEST_F(OrderTest, ACallThatIsCancelledWhilePausedDoesNotGoOn) {
  StartSliced();
  const Call large = Send(Unix(), kSlicedLen);
  const ManualBackend::Call first = device_->Await();
  const Call other = Send(Tcp(), 300);
  ASSERT_TRUE(QueueHolds(1));
  device_->FinishAndPause(first);
  const ManualBackend::Call between = device_->Await();
  ASSERT_TRUE(QueueHolds(1));
  large->Cancel();
  EXPECT_TRUE(absl::IsCancelled(large->Wait())) << large->Wait();
  // The server has heard of it too, though its only lane is busy.
  EXPECT_TRUE(QueueHolds(0));
  device_->FinishAll();
  EXPECT_TRUE(other->Wait().ok()) << other->Wait();
  EXPECT_TRUE(Eventually([&] { return server_->stats().account_bytes == 0; }));
  EXPECT_FALSE(device_->HasBegun());
}

}  // namespace
}  // namespace attnd::testing
