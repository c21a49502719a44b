#include "server/telemetry/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CallLogTest : public ::testing::Test {
 protected:
  static CallRecord Ended(absl::StatusCode code, absl::Duration total) {
    CallRecord call;
    call.status = absl::Status(code, "why");
    call.code = code;
    call.total = total;
    call.ids = CallIds("from-a-client", std::nullopt);
    call.client = "token:alice";
    return call;
  }
  void Use(LogLevel level) {
    log_.emplace(
        metrics_,
        CallLogOptions{[this](const LogLine& line) { lines_.push_back(line); },
                       [this] { ++left_out_; }, level, absl::Seconds(1)});
  }
  void Add(absl::StatusCode code, absl::Duration total) {
    log_->Add(Ended(code, total), now_);
  }
  std::vector<absl::Duration> Slowest() const {
    std::vector<absl::Duration> times;
    for (const auto& ended : log_->recent(now_).slowest) {
      times.push_back(ended.call.total);
    }
    return times;
  }

  Metrics metrics_{{}, [] { return ServerStats(); }};
  std::vector<LogLine> lines_;
  int left_out_ = 0;
  absl::Time now_ = absl::UnixEpoch();
  std::optional<CallLog> log_;
};

TEST_F(CallLogTest, CallsThatFailOrAreSlowAreLogged) {
  Use(LogLevel::kInfo);
  Add(absl::StatusCode::kOk, absl::Milliseconds(1));
  Add(absl::StatusCode::kInvalidArgument, absl::Milliseconds(2));
  Add(absl::StatusCode::kInternal, absl::Milliseconds(3));
  Add(absl::StatusCode::kOk, absl::Seconds(2));
  ASSERT_THAT(lines_, SizeIs(3));
  EXPECT_EQ(lines_[0].level, LogLevel::kInfo);
  EXPECT_EQ(lines_[0].message, "Forward ended: INVALID_ARGUMENT: why");
  EXPECT_EQ(lines_[1].level, LogLevel::kWarning);
  EXPECT_EQ(lines_[2].message, "Forward: OK");
  EXPECT_EQ(lines_[2].fields[0].name, "request_id");
  EXPECT_EQ(std::get<std::string>(lines_[2].fields[0].value), "from-a-client");
}

TEST_F(CallLogTest, AtDebugEveryCallIs) {
  Use(LogLevel::kDebug);
  for (int i = 0; i < 1000; ++i) {
    Add(absl::StatusCode::kOk, absl::Milliseconds(1));
  }
  EXPECT_THAT(lines_, SizeIs(1000));
}

TEST_F(CallLogTest, AtErrorNoneIs) {
  Use(LogLevel::kError);
  Add(absl::StatusCode::kInternal, absl::Seconds(2));
  EXPECT_THAT(lines_, IsEmpty());
}

// What its client got is the client's own code; the status never reached it.
TEST_F(CallLogTest, AClientThatGaveUpIsToldNothing) {
  Use(LogLevel::kInfo);
  CallRecord call = Ended(absl::StatusCode::kOk, absl::Milliseconds(1));
  call.code = absl::StatusCode::kCancelled;
  log_->Add(call, now_);
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(lines_[0].message, "Forward ended: CANCELLED");
}

TEST_F(CallLogTest, AFloodOfOneErrorLeavesRoomForOthersAndIsCounted) {
  Use(LogLevel::kInfo);
  constexpr int kFlood = 10000;
  for (int i = 0; i < kFlood; ++i) {
    Add(absl::StatusCode::kInvalidArgument, absl::Milliseconds(1));
  }
  const size_t written = lines_.size();
  EXPECT_GE(written, 1);
  EXPECT_LE(written, 50);
  Add(absl::StatusCode::kInternal, absl::Milliseconds(1));
  ASSERT_THAT(lines_, SizeIs(written + 1));
  EXPECT_EQ(lines_.back().level, LogLevel::kWarning);
  EXPECT_EQ(left_out_, kFlood - static_cast<int>(written));
}

TEST_F(CallLogTest, KnowsTheLastThatFailed) {
  Use(LogLevel::kError);
  constexpr int kCalls = 3 * CallLog::kKept;
  for (int i = 0; i < kCalls; ++i) {
    Add(absl::StatusCode::kAborted, absl::Milliseconds(i));
    Add(absl::StatusCode::kOk, absl::Milliseconds(i));
  }
  const auto failed = log_->recent(now_).failed;
  ASSERT_THAT(failed, SizeIs(CallLog::kKept));
  for (size_t i = 0; i < failed.size(); ++i) {
    EXPECT_EQ(failed[i].call.total, absl::Milliseconds(kCalls - 1 - int(i)));
  }
}

TEST_F(CallLogTest, KnowsTheSlowestOfTenMinutes) {
  Use(LogLevel::kError);
  for (int i = 1; i <= 1000; ++i) {
    Add(absl::StatusCode::kOk, absl::Milliseconds(i * 7919 % 1000));
  }
  std::vector<absl::Duration> expected;
  for (size_t i = 0; i < CallLog::kKept; ++i) {
    expected.push_back(absl::Milliseconds(999 - i));
  }
  EXPECT_EQ(Slowest(), expected);
  now_ += CallLog::kSlowestOf - absl::Seconds(1);
  Add(absl::StatusCode::kOk, absl::Seconds(5));
  EXPECT_EQ(Slowest()[0], absl::Seconds(5));
  EXPECT_EQ(Slowest()[1], absl::Milliseconds(999));
  // The others are too old by now, so that quick calls come in again.
  now_ += absl::Seconds(2);
  EXPECT_THAT(Slowest(), ElementsAre(absl::Seconds(5)));
  Add(absl::StatusCode::kOk, absl::Microseconds(1));
  EXPECT_THAT(Slowest(), ElementsAre(absl::Seconds(5), absl::Microseconds(1)));
}

// A request may have lists of lengths; what is kept is small.
TEST_F(CallLogTest, KeepsTheShapeAndNotTheRequest) {
  Use(LogLevel::kInfo);
  RequestSpec spec;
  spec.inputs[TensorId::kQ] = {DType::kBF16, {2, 10, 8, 64}};
  spec.inputs[TensorId::kK] = {DType::kBF16, {2, 20, 2, 64}};
  spec.inputs[TensorId::kV] = {DType::kBF16, {2, 20, 2, 32}};
  spec.mask.causal = true;
  spec.mask.left = 5;
  spec.algorithm = Algorithm::kNaive;
  auto request = Request::Create(std::move(spec));
  ASSERT_TRUE(request.ok()) << request.status();
  CallRecord call = Ended(absl::StatusCode::kAborted, absl::Milliseconds(1));
  call.request = *std::move(request);
  log_->Add(call, now_);
  constexpr char kShape[] =
      "forward:bf16:b2:s10/20:h8/2:d64/32:causal:w5/-1:naive";
  EXPECT_EQ(ShapeOf(*call.request), kShape);
  const auto failed = log_->recent(now_).failed;
  ASSERT_THAT(failed, SizeIs(1));
  EXPECT_EQ(failed[0].shape, kShape);
  EXPECT_EQ(failed[0].call.request, nullptr);
}

TEST(CallIdsTest, AGoodIdOfTheClientsIsTaken) {
  const CallIds ids("a.B:9_-", std::nullopt);
  EXPECT_EQ(ids.request_id(), "a.B:9_-");
  EXPECT_TRUE(ids.asked_for());
}

TEST(CallIdsTest, AnyOtherIsReplaced) {
  for (const std::string& bad :
       {std::string(), std::string(129, 'a'), std::string("a b"),
        std::string("a\n"), std::string("<b>"), std::string(1, '\0')}) {
    const CallIds ids(bad, std::nullopt);
    EXPECT_FALSE(ids.asked_for());
    EXPECT_THAT(ids.request_id(), SizeIs(16));
  }
  EXPECT_EQ(CallIds(std::string(128, 'a'), std::nullopt).request_id().size(),
            128);
}

TEST(CallIdsTest, NoTwoCallsHaveTheSame) {
  const CallIds a(std::nullopt, std::nullopt), b(std::nullopt, std::nullopt);
  EXPECT_NE(a.request_id(), b.request_id());
  EXPECT_EQ(a.request_id(), CallIds(a).request_id());
}

TEST(CallIdsTest, TheSpanIsInTheClientsTrace) {
  constexpr char kParent[] =
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const CallIds ids(std::nullopt, kParent);
  ASSERT_TRUE(ids.parent().has_value());
  const wire::TraceContext span = ids.span();
  EXPECT_EQ(span.trace_id, ids.parent()->trace_id);
  EXPECT_NE(span.span_id, ids.parent()->span_id);
  EXPECT_EQ(span.flags, 1);
  EXPECT_TRUE(wire::ParseTraceparent(wire::ToTraceparent(span)).has_value());
  EXPECT_FALSE(CallIds(std::nullopt, "00-bad").parent().has_value());
}

}  // namespace
}  // namespace attnd::server
