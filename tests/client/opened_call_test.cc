// Which calls the server is told of before their message is there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/client/region_call_fixture.h"

namespace attnd::client {
namespace {

class OpenedCallTest : public RegionCallTest {
 protected:
  OpenedCallTest() { Begin({}); }

  void Begin(const ClientOptions& options) {
    Reset(options);
    transport_->opens = true;
  }
  // Of every attempt, in turn; good ones afterwards.
  void AnswerWith(std::vector<absl::Status> statuses,
                  const attn::v1::ForwardResponse& good) {
    transport_->answer = [this, statuses = std::move(statuses),
                          bytes = good.SerializeAsString()](
                             const FakeTransport::Attempt& attempt) {
      sent_.push_back(attempt.Bytes());
      const size_t number = sent_.size() - 1;
      if (number < statuses.size()) {
        return Transport::Result(statuses[number]);
      }
      return Transport::Result(std::make_unique<FakeResponse>(bytes));
    };
  }
  const FakeTransport::Opening& Only() {
    EXPECT_EQ(transport_->openings.size(), 1);
    return transport_->openings.at(0);
  }

  std::vector<std::string> sent_;
};

TEST_F(OpenedCallTest, WhereNoBytesOfTensorsTravel) {
  const auto region = AddRegion(kCallBytes);
  AnswerWith({}, ResponseIn(*region));
  ForwardCall call = CallIn(*region);
  // Long lists are the largest that a request may be without its tensors.
  call.attention.q_start.assign(5000, int64_t{1} << 62);
  const absl::Time before = MonotonicNow();
  const auto report = client_->Forward(call, {absl::Seconds(9)});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, TransportKind::kRegion);
  EXPECT_EQ(report->attempts, 1);
  EXPECT_EQ(Only().method, "/attn.v1.AttentionService/Forward");
  EXPECT_GE(Only().headers.deadline, before + absl::Seconds(9));
  EXPECT_LE(Only().headers.deadline, MonotonicNow() + absl::Seconds(9));
  EXPECT_TRUE(Only().has_run);
  ASSERT_EQ(sent_.size(), 1);
  EXPECT_GE(Only().bytes, static_cast<int64_t>(sent_[0].size()));
}

TEST_F(OpenedCallTest, NotWhereBytesTravel) {
  const auto region = AddRegion(kCallBytes);
  ForwardCall call = CallIn(*region);
  call.q.data = q_.data();
  AnswerWith({}, ResponseIn(*region));
  EXPECT_TRUE(client_->Forward(call, {}).ok());
  AnswerWith({}, GoodResponse());
  EXPECT_TRUE(client_->Forward(Call(), {}).ok());
  EXPECT_TRUE(transport_->openings.empty());
}

// Whoever starts one does not wait for it, and gains nothing.
TEST_F(OpenedCallTest, NotOfAnAsynchronousCall) {
  const auto region = AddRegion(kCallBytes);
  Start(CallIn(*region));
  Answer(ResponseIn(*region));
  EXPECT_EQ(Done().transport, TransportKind::kRegion);
  EXPECT_TRUE(transport_->openings.empty());
}

TEST_F(OpenedCallTest, BadInputIsNotSent) {
  const auto region = AddRegion(kCallBytes);
  ForwardCall call = CallIn(*region);
  call.algorithm = static_cast<Algorithm>(99);
  const auto report = client_->Forward(call, {});
  EXPECT_TRUE(absl::IsInvalidArgument(report.status())) << report.status();
  EXPECT_FALSE(Only().has_run);
  EXPECT_TRUE(Only().is_over);
  EXPECT_EQ(transport_->size(), 0);
}

TEST_F(OpenedCallTest, ALongerMessageThanWasSaidGoesByACallOfItsOwn) {
  const auto region =
      AddRegion(kCallBytes, /*on_device=*/false, std::string(8192, 'r'));
  AnswerWith({}, ResponseIn(*region));
  const auto report = client_->Forward(CallIn(*region), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(Only().has_run);
  EXPECT_TRUE(Only().is_over);
  ASSERT_EQ(sent_.size(), 1);
  EXPECT_LT(Only().bytes, static_cast<int64_t>(sent_[0].size()));
}

TEST_F(OpenedCallTest, FurtherAttemptsSendAllAtOnce) {
  ClientOptions options;
  options.initial_backoff = options.max_backoff = absl::Milliseconds(1);
  Begin(options);
  const auto region = AddRegion(kCallBytes);
  AnswerWith({absl::UnavailableError("restarts")}, ResponseIn(*region));
  const auto report = client_->Forward(CallIn(*region), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->attempts, 2);
  EXPECT_TRUE(Only().has_run);
  ASSERT_EQ(sent_.size(), 2);
  EXPECT_EQ(sent_[0], sent_[1]);
}

TEST_F(OpenedCallTest, BytesOfAnUnknownRegionGoByACallOfTheirOwn) {
  const auto region = AddRegion(kCallBytes);
  std::memcpy(region->at(0), q_.data(), q_.size());
  AnswerWith({absl::NotFoundError("no such region")}, GoodResponse());
  const auto report = client_->Forward(CallIn(*region), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->transport, TransportKind::kUnary);
  EXPECT_TRUE(Only().has_run);
  ASSERT_EQ(sent_.size(), 2);
  attn::v1::ForwardRequest request;
  ASSERT_TRUE(request.ParseFromString(sent_[1]));
  EXPECT_EQ(request.q().data(), q_);
}

}  // namespace
}  // namespace attnd::client
