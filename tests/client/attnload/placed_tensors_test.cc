#include "client/attnload/placed_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/client/attnload/fake_client.h"
#include "tests/client/attnload/plain_attention.h"
#include "tests/client/region_server.h"
#include "tests/hang_limit.h"

namespace attnd::attnload {
namespace {

using client::GrantHostMemory;
using client::RegionServer;

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

class PlacedTensorsTest : public ::testing::Test {
 protected:
  void Place(int64_t slots, int64_t most_bytes) {
    client::TransportFlags flags;
    flags.transport = client::TransportChoice::kRegion;
    flags.region_socket = server_.path();
    auto placed = PlacedTensors::Place(flags, workload_, slots, most_bytes,
                                       testing::kHangLimit);
    ASSERT_TRUE(placed.ok()) << placed.status();
    placed_ = *std::move(placed);
  }
  bool InRegion(const void* data, int64_t bytes) const {
    const auto* begin = static_cast<const char*>(data);
    for (const auto& region : placed_->memory().regions()) {
      const auto* base = static_cast<const char*>(region->data());
      if (begin >= base && begin + bytes <= base + region->bytes()) {
        return (begin - base) % 256 == 0;
      }
    }
    return false;
  }

  RegionServer server_{GrantHostMemory};
  Workload workload_{
      {*ParseShape("s4/6:h2/1:d8"), *ParseShape("backward:bf16:s5:h1:d4")}, 1};
  std::unique_ptr<PlacedTensors> placed_;
};

TEST_F(PlacedTensorsTest, ACallHasItsTensorsThere) {
  Place(2, kAny);
  EXPECT_EQ(placed_->memory().regions().size(), 1);
  std::set<char*> slots = {placed_->TakeSlot(), placed_->TakeSlot()};
  EXPECT_EQ(slots.size(), 2);
  for (size_t shape = 0; shape < 2; ++shape) {
    Payload& payload = workload_.payload(shape);
    const std::unique_ptr<Answer> answer = payload.TakeAnswer();
    const auto look = [&](auto call) {
      const auto before = call;
      placed_->Point(shape, *slots.begin(), call);
      EXPECT_TRUE(InRegion(
          call.q.data, payload.shape().q_elements() * SizeOf(call.q.dtype)));
      EXPECT_EQ(
          std::memcmp(call.v.data, before.v.data,
                      payload.shape().v_elements() * SizeOf(call.v.dtype)),
          0);
      EXPECT_EQ(call.bias.data, nullptr);
      return call;
    };
    if (payload.shape().backward) {
      const client::BackwardCall call = look(payload.Backward(*answer));
      EXPECT_TRUE(InRegion(call.delta.data == nullptr ? call.o.data : nullptr,
                           payload.shape().o_elements() * 2));
      EXPECT_EQ(call.dq.data, *slots.begin());
      EXPECT_EQ(static_cast<char*>(call.dk.data), *slots.begin() + 256);
      EXPECT_EQ(static_cast<char*>(call.dv.data), *slots.begin() + 512);
    } else {
      const client::ForwardCall call = look(payload.Forward(*answer));
      EXPECT_EQ(call.o.data, *slots.begin());
      EXPECT_TRUE(InRegion(call.lse.data, payload.shape().rows() * 4));
    }
  }
}

TEST_F(PlacedTensorsTest, LeasesAreAsLargeAsTheyMayBe) {
  Place(5, 1024);
  EXPECT_GT(placed_->memory().regions().size(), 3);
  for (const auto& region : placed_->memory().regions()) {
    EXPECT_LE(region->bytes(), 1024);
  }
  std::set<char*> slots;
  for (int i = 0; i < 5; ++i) {
    slots.insert(placed_->TakeSlot());
    EXPECT_TRUE(InRegion(*slots.rbegin(), 768));
  }
  EXPECT_EQ(slots.size(), 5);
}

TEST_F(PlacedTensorsTest, ResultsAreCopiedBack) {
  Place(1, kAny);
  Payload& payload = workload_.payload(1);
  const std::unique_ptr<Answer> sent = payload.TakeAnswer(),
                                got = payload.TakeAnswer();
  ComputePlainly(payload, *sent);
  char* const slot = placed_->TakeSlot();
  ASSERT_TRUE(placed_->CopyIn(payload, *sent, slot).ok());
  ASSERT_TRUE(placed_->CopyOut(payload, slot, *got).ok());
  EXPECT_EQ(got->a, sent->a);
  EXPECT_EQ(got->b, sent->b);
  EXPECT_EQ(got->c, sent->c);
}

TEST_F(PlacedTensorsTest, AnswersInRegionsAreChecked) {
  for (const bool right : {true, false}) {
    workload_ = Workload({*ParseShape("s4/6:h2/1:d8")}, 1);
    Place(3, kAny);
    Payload& payload = workload_.payload(0);
    const std::unique_ptr<Answer> answer = payload.TakeAnswer();
    ComputePlainly(payload, *answer, right ? 1 : 3);
    FakeClient client([](int64_t) { return client::Report(); });
    client.look = [&](const client::ForwardCall& call) {
      EXPECT_TRUE(InRegion(call.q.data, 1));
      EXPECT_TRUE(InRegion(call.o.data, 1));
      std::memcpy(call.o.data, answer->a.data(), answer->a.size());
      std::memcpy(call.lse.data, answer->rows.data(),
                  answer->rows.size() * sizeof(float));
    };
    LoadOptions options;
    options.level = 3;
    options.warm_up = absl::ZeroDuration();
    options.requests = 20;
    options.check_share = 1;
    options.placed = placed_.get();
    const Results results =
        RunLoad(client, workload_, options,
                [](const Results&, int64_t, absl::Duration) {});
    EXPECT_EQ(results.ok, 20);
    EXPECT_GT(results.answers_checked, 0);
    EXPECT_EQ(results.answers_wrong, right ? 0 : results.answers_checked);
  }
}

TEST_F(PlacedTensorsTest, WithoutAServerThereIsNothing) {
  client::TransportFlags flags;
  flags.transport = client::TransportChoice::kRegion;
  flags.region_socket = "/nowhere/at/all";
  EXPECT_TRUE(absl::IsUnavailable(
      PlacedTensors::Place(flags, workload_, 1, kAny, testing::kHangLimit)
          .status()));
}

}  // namespace
}  // namespace attnd::attnload
