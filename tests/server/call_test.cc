#include "server/front/call.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/v1/attention.pb.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "tests/notification.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/late_backend.h"
#include "tests/server/fakes/manual_backend.h"
#include "tests/server/scheduler_testing.h"

namespace attnd::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

// What a call has asked of whoever carries it.
class FakeStream final : public CallStream {
 public:
  void Read() override { ++reads; }
  void DropMessage() override { dropped = true; }
  void Announce() override { ++announced; }
  void Answer(absl::Span<const wire::Piece> pieces,
              absl::AnyInvocable<void()> release) override {
    release_answer = std::move(release);
    answer_pieces = pieces.size();
    status = absl::OkStatus();
    ended.Notify();
  }
  void Refuse(const absl::Status& refusal) override {
    status = refusal;
    ended.Notify();
  }
  void Cut() override { cut.Notify(); }

  int reads = 0, announced = 0;
  bool dropped = false;
  size_t answer_pieces = 0;
  absl::AnyInvocable<void()> release_answer;
  std::optional<absl::Status> status;
  Notification ended, cut;
};

std::string SmallRequest(int kv_len = 1) {
  attn::v1::ForwardRequest request;
  for (auto* tensor :
       {request.mutable_q(), request.mutable_k(), request.mutable_v()}) {
    const int len = tensor == request.mutable_q() ? 1 : kv_len;
    tensor->set_dtype(attn::v1::DATA_TYPE_F32);
    for (int dim : {1, len, 1, 8}) tensor->add_shape(dim);
    tensor->set_data(std::string(len * 8 * 4, '\1'));
  }
  return request.SerializeAsString();
}

class CallTest : public ::testing::Test {
 protected:
  // A backend that runs things when it is told to.
  void StepByHand() { scheduler_ = MakeScheduler(OneLane(), {&manual_}); }
  void StallAfter(absl::Duration time) { stall_time_ = time; }

  std::shared_ptr<Call> Start(std::optional<std::string> request_bytes = {},
                              absl::Time deadline = absl::InfiniteFuture()) {
    parts_.scheduler = scheduler_.get();
    parts_.calls = &calls_;
    parts_.admitted_calls = &admitted_;
    parts_.uploads = &uploads_;
    parts_.alarms = &alarms_;
    parts_.excess_memory = excess_memory_;
    parts_.max_message_bytes = kMiB;
    parts_.stall_time = stall_time_;
    stream_ = std::make_shared<FakeStream>();
    auto call = std::make_shared<Call>(
        parts_, stream_, Op::kForward,
        CallHeader{
            {"client", "connection"}, deadline, std::move(request_bytes), {}});
    call->Start();
    return call;
  }
  void Send(Call& call, const std::string& message) {
    const std::vector<absl::string_view> fragments = {message};
    call.OnMessage(fragments);
  }
  // All memory for messages, until it is reset.
  std::shared_ptr<UploadRoom::Upload> TakeAllRoom() {
    auto upload =
        uploads_.Enter({"other", "other"}, kMiB, [](const absl::Status&) {});
    EXPECT_TRUE(upload.ok());
    return *std::move(upload);
  }
  absl::Status AwaitEnd() {
    stream_->ended.WaitForNotification();
    return *stream_->status;
  }

  IdentityBackend backend_;
  ManualBackend manual_;
  std::unique_ptr<Scheduler> scheduler_ = MakeScheduler(OneLane(), {&backend_});
  Metrics metrics_{{}, [] { return ServerStats(); }};
  CallLog calls_{metrics_, {}};
  AdmittedCalls admitted_;
  UploadRoom uploads_{{kMiB, kMiB, kMiB, 64}};
  absl::Duration stall_time_ = absl::Hours(1);
  std::function<int64_t()> excess_memory_;
  ServiceParts parts_;
  std::shared_ptr<FakeStream> stream_;
  Alarms alarms_;
};

TEST_F(CallTest, AnswersItsMessage) {
  const std::string message = SmallRequest();
  const auto call = Start();
  EXPECT_EQ(stream_->reads, 1);
  EXPECT_FALSE(stream_->dropped);
  Send(*call, message);
  EXPECT_EQ(AwaitEnd(), absl::OkStatus());
  EXPECT_EQ(stream_->announced, 0);
  EXPECT_GT(stream_->answer_pieces, 0);
  EXPECT_TRUE(stream_->dropped);
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  stream_->release_answer();
  stream_->release_answer = nullptr;
  call->OnDone(/*cancelled=*/false);
}

TEST_F(CallTest, AnnouncesAnAnswerThatTakesLong) {
  LateBackend device;
  scheduler_ = MakeScheduler(OneLane(), {&device});
  const std::string message = SmallRequest();
  const auto call = Start();
  Send(*call, message);
  device.AwaitWait();
  EXPECT_EQ(stream_->announced, 1);
  EXPECT_FALSE(stream_->status.has_value());
  device.Finish();
  EXPECT_EQ(AwaitEnd(), absl::OkStatus());
  EXPECT_EQ(stream_->announced, 1);
  stream_->release_answer = nullptr;
  call->OnDone(/*cancelled=*/false);
  scheduler_ = nullptr;  // before its device
}

TEST_F(CallTest, IsNotReadBeforeThereIsRoom) {
  auto held = TakeAllRoom();
  const std::string message = SmallRequest();
  const auto call = Start(std::to_string(kMiB / 2));
  EXPECT_EQ(stream_->reads, 0);
  held.reset();
  EXPECT_EQ(stream_->reads, 1);
  Send(*call, message);
  EXPECT_EQ(AwaitEnd(), absl::OkStatus());
  call->OnDone(false);
}

TEST_F(CallTest, CancelledWhileItWaitsItWaitsNoLonger) {
  auto held = TakeAllRoom();
  const auto call = Start(std::to_string(kMiB / 2));
  call->OnCancel();
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(uploads_.stats().waiting, 0);
  held.reset();
  EXPECT_EQ(stream_->reads, 0);
  call->OnDone(true);
}

TEST_F(CallTest, CancelledWhileItIsReadItGivesItsRoomBack) {
  const std::string message = SmallRequest();
  const auto call = Start();
  call->OnCancel();
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  // What was on its way comes too late.
  Send(*call, message);
  call->OnNoMessage();
  call->OnDone(true);
}

TEST_F(CallTest, CancelledWhileItRunsItEndsSo) {
  StepByHand();
  const std::string message = SmallRequest();
  const auto call = Start();
  Send(*call, message);
  const ManualBackend::Call kernel = manual_.Await();
  call->OnCancel();
  manual_.Finish(kernel);
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  call->OnDone(true);
}

// A device with memory for two such requests, not three.
class HeldCallTest : public CallTest {
 protected:
  void SetUp() override {
    SchedulerOptions options = OneLane();
    options.memory_bytes = 64 << 10;
    scheduler_ = MakeScheduler(options, {&manual_});
  }
  // Runs until Finish, and leaves no memory.
  ManualBackend::Call TakeAllMemory() {
    first_ = Start();
    Send(*first_, message_);
    first_stream_ = stream_;
    return manual_.Await();
  }
  void EndFirst(const ManualBackend::Call& kernel) {
    manual_.Finish(kernel);
    first_stream_->ended.WaitForNotification();
    EXPECT_EQ(*first_stream_->status, absl::OkStatus());
    first_stream_->release_answer = nullptr;
    first_->OnDone(false);
  }

  const std::string message_ = SmallRequest(/*kv_len=*/400);
  std::shared_ptr<Call> first_;
  std::shared_ptr<FakeStream> first_stream_;
};

TEST_F(HeldCallTest, AMessageThatIsHereWaitsForMemory) {
  const ManualBackend::Call kernel = TakeAllMemory();
  const auto held = Start();
  Send(*held, message_);
  EXPECT_FALSE(stream_->ended.HasBeenNotified());
  EXPECT_FALSE(stream_->dropped);
  EndFirst(kernel);
  manual_.FinishAll();
  EXPECT_EQ(AwaitEnd(), absl::OkStatus());
  EXPECT_TRUE(stream_->dropped);
  held->OnDone(false);
}

TEST_F(HeldCallTest, AndIsRefusedWithADelayIfThereIsNone) {
  StallAfter(absl::Milliseconds(100));
  const ManualBackend::Call kernel = TakeAllMemory();
  const auto held = Start();
  Send(*held, message_);
  const absl::Status status = AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(wire::RetryDelay(status), std::nullopt);
  EXPECT_TRUE(stream_->dropped);
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  held->OnDone(false);
  EndFirst(kernel);
}

TEST_F(HeldCallTest, CancelledMeanwhileItEndsSo) {
  const ManualBackend::Call kernel = TakeAllMemory();
  const auto held = Start();
  Send(*held, message_);
  held->OnCancel();
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(stream_->dropped);
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  held->OnDone(true);
  EndFirst(kernel);
}

TEST_F(CallTest, WithoutAMessageIsInvalid) {
  const auto call = Start();
  call->OnNoMessage();
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  call->OnDone(false);
}

TEST_F(CallTest, AGarbledHintIsRefusedByItsName) {
  for (const char* text : {"", "-1", "ten", "1e3", "9223372036854775808"}) {
    const auto call = Start(text);
    const absl::Status status = AwaitEnd();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    const auto fields = wire::FieldViolations(status);
    ASSERT_EQ(fields.size(), 1) << text;
    EXPECT_EQ(fields[0].field, "attnd-request-bytes") << text;
    EXPECT_EQ(stream_->reads, 0) << text;
    call->OnDone(false);
  }
}

TEST_F(CallTest, AMessageThatIsRefusedIsDropped) {
  const std::string message = "no request";
  const auto call = Start();
  Send(*call, message);
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(stream_->dropped);
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  call->OnDone(false);
}

TEST_F(CallTest, AMessageThatDoesNotArriveIsGivenUpAfterTheStallTime) {
  StallAfter(absl::Milliseconds(100));
  const absl::Time began = MonotonicNow();
  const auto call = Start(std::to_string(kMiB / 2));
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(MonotonicNow() - began, absl::Milliseconds(100));
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  call->OnDone(false);
}

TEST_F(CallTest, ASmallMessageThatDoesNotArriveIsGivenUpToo) {
  StallAfter(absl::Milliseconds(100));
  const auto call = Start();
  EXPECT_EQ(AwaitEnd().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  call->OnDone(false);
}

TEST_F(CallTest, AMessageThatFindsNoRoomIsRefusedWithADelay) {
  StallAfter(absl::Milliseconds(100));
  const auto held = TakeAllRoom();
  const auto call = Start(std::to_string(kMiB / 2));
  const absl::Status status = AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(wire::RetryDelay(status), std::nullopt);
  EXPECT_EQ(stream_->reads, 0);
  call->OnDone(false);
}

TEST_F(CallTest, AMessageIsGivenUpWhereItTakesMoreMemoryThanThereIs) {
  excess_memory_ = [] { return 1; };
  const auto call = Start();
  const absl::Status status = AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // No other is under way, so that it is its own length.
  EXPECT_FALSE(wire::RetryDelay(status).has_value());
  EXPECT_EQ(uploads_.stats().reserved_bytes, 0);
  call->OnDone(false);
}

TEST_F(CallTest, BesideOthersItMayNotBeTheOneThatTakesTheMemory) {
  excess_memory_ = [] { return 1; };
  auto other = TakeAllRoom();
  const auto call = Start("100");
  const absl::Status status = AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(wire::RetryDelay(status).has_value());
  call->OnDone(false);
}

// Its looks at the memory have gone by once a message without one has ended.
TEST_F(CallTest, AMessageOfAKnownLengthOnlyWhereMuchMoreIsTaken) {
  excess_memory_ = [] { return MessageWatch::kMoreExcess; };
  const auto known = Start(std::to_string(kMiB / 2));
  const std::shared_ptr<FakeStream> known_stream = stream_;
  const auto unknown = Start();
  EXPECT_FALSE(AwaitEnd().ok());
  EXPECT_FALSE(known_stream->ended.HasBeenNotified());
  known->OnCancel();
  known->OnDone(true);
  unknown->OnDone(false);
}

TEST_F(CallTest, AnAnswerThatNobodyReadsIsCutAfterTheStallTime) {
  StallAfter(absl::Milliseconds(100));
  const std::string message = SmallRequest();
  const auto call = Start();
  Send(*call, message);
  EXPECT_EQ(AwaitEnd(), absl::OkStatus());
  stream_->cut.WaitForNotification();
  call->OnDone(true);
}

TEST_F(CallTest, CountsWithTheCodeThatItsClientGot) {
  const std::string message = "no request";
  const auto refused = Start();
  Send(*refused, message);
  EXPECT_FALSE(AwaitEnd().ok());
  refused->OnDone(/*cancelled=*/false);
  const auto given_up = Start();
  given_up->OnCancel();
  EXPECT_FALSE(AwaitEnd().ok());
  given_up->OnDone(/*cancelled=*/true);
  int invalid = 0, cancelled = 0;
  for (const auto& family : metrics_.Collect()) {
    if (family.name != "attnd_requests_total") continue;
    for (const auto& metric : family.metric) {
      for (const auto& label : metric.label) {
        if (label.value == "INVALID_ARGUMENT") invalid += metric.counter.value;
        if (label.value == "CANCELLED") cancelled += metric.counter.value;
      }
    }
  }
  EXPECT_EQ(invalid, 1);
  EXPECT_EQ(cancelled, 1);
}

}  // namespace
}  // namespace attnd::server
