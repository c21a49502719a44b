// How a scheduler shares a device's time out between clients.

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/fakes/test_work.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

// A client with so many requests at once, each of them sent anew when it is
// answered; of its own `q_len`, by which it is known.
struct Load {
  std::string client;
  int at_once = 1;
  int64_t q_len = 512;
  double shares = 1;
};

// How many FLOPs a device that takes one request at a time runs of each, while
// it runs `steps` requests.
std::map<std::string, double> Serve(const std::vector<Load>& loads, int steps) {
  ManualBackend backend;
  SchedulerOptions options = OneLane();
  options.max_batch_requests = 1;
  auto scheduler = MakeScheduler(options, {&backend});
  std::map<std::string, std::deque<std::unique_ptr<TestWork>>> sent;
  const auto send = [&](const Load& load) {
    auto test = std::make_unique<TestWork>(
        WorkShape{.q_len = load.q_len, .kv_len = 512, .client = load.client});
    test->work()->quota.shares = load.shares;
    ASSERT_EQ(scheduler->Submit(test->work()), absl::OkStatus());
    sent[load.client].push_back(std::move(test));
  };
  for (const Load& load : loads) {
    for (int i = 0; i < load.at_once; ++i) send(load);
  }
  std::map<std::string, double> served;
  for (int step = 0; step < steps; ++step) {
    const ManualBackend::Call call = backend.Await();
    for (const Load& load : loads) {
      if (load.q_len != call.q_lens.at(0)) continue;
      // Of one client they run in order.
      auto& line = sent[load.client];
      backend.Finish(call);
      EXPECT_EQ(line.front()->AwaitStatus(), absl::OkStatus());
      line.pop_front();
      served[load.client] += static_cast<double>(load.q_len);
      send(load);
    }
  }
  backend.FinishAll();
  return served;
}

TEST(SchedulerSharesTest, SixtyFourConnectionsGetWhatOneGets) {
  auto served = Serve({{.client = "many", .at_once = 64, .q_len = 512},
                       {.client = "one", .at_once = 8, .q_len = 500}},
                      300);
  EXPECT_NEAR(served["many"] / served["one"], 1, 0.1);
}

TEST(SchedulerSharesTest, EvenIfTheOneHasASingleRequestOfAnotherSize) {
  for (const int64_t q_len : {300, 700, 1500}) {
    auto served = Serve({{.client = "many", .at_once = 64, .q_len = 512},
                         {.client = "one", .at_once = 1, .q_len = q_len}},
                        300);
    if (q_len >= 512) {
      EXPECT_NEAR(served["many"] / served["one"], 1, 0.1) << q_len;
    } else {
      // It has nothing more to run than this.
      EXPECT_NEAR(served["many"] / served["one"], 512.0 / q_len, 0.2);
    }
  }
}

TEST(SchedulerSharesTest, TwoSharesAreTwiceAsMuch) {
  auto served =
      Serve({{.client = "two", .at_once = 4, .q_len = 500, .shares = 2},
             {.client = "one", .at_once = 64, .q_len = 512},
             {.client = "half", .at_once = 8, .q_len = 520, .shares = 0.5}},
            350);
  EXPECT_NEAR(served["two"] / served["one"], 2, 0.2);
  EXPECT_NEAR(served["half"] / served["one"], 0.5, 0.05);
}

}  // namespace
}  // namespace attnd::server
