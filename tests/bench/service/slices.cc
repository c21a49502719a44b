// What one client's large request costs others, and being paused costs it.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/bench/service/section.h"
#include "tests/bench/stats.h"
#include "tests/integration/rpc.h"

namespace attnd::bench {
namespace {

using testing::Connect;
using testing::PendingForward;
using testing::RandomForward;

double Milliseconds(const std::shared_ptr<grpc::Channel>& channel,
                    const attn::v1::ForwardRequest& request) {
  attn::v1::ForwardResponse response;
  const absl::Time start = MonotonicNow();
  Require(testing::Forward(channel, request, response));
  return absl::ToDoubleMilliseconds(MonotonicNow() - start);
}

// A backward over [1, len, 1, dim] of random numbers, its upstream included.
attn::v1::BackwardRequest RandomBackward(int64_t len, int64_t dim) {
  const attn::v1::ForwardRequest forward = RandomForward(len, 1, dim);
  attn::v1::BackwardRequest backward;
  *backward.mutable_q() = forward.q();
  *backward.mutable_k() = forward.k();
  *backward.mutable_v() = forward.v();
  *backward.mutable_d_o() = forward.k();
  *backward.mutable_o() = forward.v();
  attn::v1::Tensor& lse = *backward.mutable_lse();
  lse.set_dtype(attn::v1::DATA_TYPE_F32);
  for (const int64_t n : {int64_t{1}, int64_t{1}, len}) lse.add_shape(n);
  lse.mutable_data()->resize(len * sizeof(float));
  return backward;
}

// Calls of 2e9 FLOPs, one after another, while another client has `large`.
template <class Pending, class Request>
void Beside(const std::string& what, const Request& large, Table& table) {
  constexpr int kCalls = 60;
  const auto process = StartAttnd({"--metrics_port=0"});
  const auto channel = Connect(process->tcp());
  const attn::v1::ForwardRequest request = RandomForward(1024, 8, 64);
  std::vector<double> alone, beside;
  for (int i = 0; i < kCalls; ++i) {
    alone.push_back(Milliseconds(channel, request));
  }
  // Peers of the unix socket are another client.
  Pending pending(Connect(process->unix_socket()), large, absl::Hours(1));
  while (process->Metric("attnd_running_requests") != 1) {
    if (pending.WaitFor(absl::Milliseconds(10))) Require(pending.Wait());
  }
  for (int i = 0; i < kCalls; ++i) {
    beside.push_back(Milliseconds(channel, request));
  }
  table.Holds(absl::StrCat(what, " still runs"), "yes",
              !pending.WaitFor(absl::ZeroDuration()));
  table.AtMost(
      absl::StrCat("p50 beside it (alone ",
                   absl::FormatDuration(absl::Milliseconds(Median(alone))),
                   ")"),
      absl::Milliseconds(Median(beside)), absl::Seconds(1));
  table.AtMost("p99 beside it", absl::Milliseconds(Quantile(beside, 0.99)),
               absl::Seconds(2));
}

// A large request that is alone, which may be paused and is not, against one
// that may not.
void Alone(Table& table) {
  constexpr int kTimes = 7;
  const auto paused = StartAttnd({"--slice_time=1ms"}),
             whole = StartAttnd({"--slice_time=10s"});
  const auto paused_channel = Connect(paused->tcp()),
             whole_channel = Connect(whole->tcp());
  const attn::v1::ForwardRequest large = RandomForward(16384, 2, 64);
  std::vector<double> may, may_not;
  for (int i = -1; i < kTimes; ++i) {
    const double first = Milliseconds(paused_channel, large),
                 second = Milliseconds(whole_channel, large);
    if (i < 0) continue;  // to warm up
    may.push_back(first);
    may_not.push_back(second);
  }
  table.AtMost("a large one alone, pauses possible against never",
               MedianRatio(may, may_not), 1.05, "x");
}

}  // namespace

void Slices(Table& table) {
  // Few bytes; nearly as much as one may cost, in long tasks, as a block of
  // rows sees all columns; and as much backward, in the fewest slabs.
  Beside<PendingForward>("1.3e13 FLOPs of dim 1", RandomForward(900'000, 4, 1),
                         table);
  Beside<PendingForward>("9e13 FLOPs of dim 64", RandomForward(600'000, 1, 64),
                         table);
  Beside<testing::PendingBackward>("9e13 FLOPs of dim 64, backward,",
                                   RandomBackward(380'000, 64), table);
  Alone(table);
}

}  // namespace attnd::bench
