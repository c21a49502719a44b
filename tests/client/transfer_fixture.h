#ifndef ATTND_TESTS_CLIENT_TRANSFER_FIXTURE_H_
#define ATTND_TESTS_CLIENT_TRANSFER_FIXTURE_H_

// A transfer whose streams and executor the test steps by hand.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/transfer.h"
#include "proto/wire/status.h"
#include "tests/client/fake_transport.h"
#include "tests/client/manual_executor.h"
#include "tests/client/transfer_testing.h"

namespace attnd::client {

inline constexpr int kO = attn::v1::ForwardResponse::kOFieldNumber;
inline constexpr int kQ = attn::v1::ForwardRequest::kQFieldNumber;
inline constexpr int kK = attn::v1::ForwardRequest::kKFieldNumber;

class TransferTest : public ::testing::Test {
 protected:
  // A transfer lives until its streams have ended.
  ~TransferTest() override {
    for (const auto& stream : transport_.streams.all) {
      if (!stream->ended) stream->End(absl::CancelledError(""));
    }
    executor_.RunReady();
  }

  void Start(int streams) {
    auto parts = EncodeForwardExchange(forward_.call, {}, {streams, 0});
    ASSERT_TRUE(parts.ok()) << parts.status();
    spec_.parts = *std::move(parts);
    spec_.decode = [this](Fragments fragments) {
      return DecodeForwardExchange(fragments, spec_.parts.outputs, report_);
    };
    transfer_ = Transfer::Start(
        spec_, transport_, executor_,
        {.deadline = executor_.Now() + absl::Minutes(1)},
        [this](TransferResult result) {
          ASSERT_FALSE(result_.has_value()) << "done twice";
          for (const auto& stream : transport_.streams.all) {
            EXPECT_TRUE(stream->ended) << "done before a stream had ended";
          }
          result_ = std::move(result);
        });
  }
  // Until the server has let the client send, and others have joined.
  void StartAdmitted(int streams) {
    Start(streams);
    Take(0);
    at(0).Send(Admitted(streams));
    ASSERT_EQ(transport_.streams.size(), streams);
    for (int i = 1; i < streams; ++i) Take(i);
  }
  // Until the server has all inputs; joined streams go on.
  void StartSent(int streams) {
    StartAdmitted(streams);
    for (bool any = true; std::exchange(any, false);) {
      for (int i = streams - 1; i >= 0; --i) {
        if (!at(i).writing) continue;
        Take(i);
        any = true;
      }
    }
    ASSERT_TRUE(received_.inputs_sent.has_value());
    received_.ExpectAllOf(forward_);
  }

  FakeStream& at(size_t index) { return transport_.streams.at(index); }
  // The server receives what the stream is writing.
  void Take(size_t index) {
    ASSERT_TRUE(at(index).writing) << index;
    received_.Take(at(index).written.back());
    at(index).TakeWrite();
  }
  void SendResult(size_t index, int64_t chunk) {
    at(index).Send(ChunkOf(kO, forward_.o, chunk));
  }
  void End(size_t index, absl::Status status = absl::OkStatus()) {
    at(index).End(std::move(status));
    executor_.RunReady();
  }

  void ExpectDone() {
    ASSERT_TRUE(result_.has_value());
    EXPECT_TRUE(result_->status.ok()) << result_->status;
    EXPECT_EQ(forward_.got_o, forward_.o);
    EXPECT_EQ(forward_.got_lse, forward_.lse);
    EXPECT_EQ(report_.device, "cpu:0 test");
    EXPECT_EQ(report_.receive, absl::Nanoseconds(5));
  }
  // The message makes all streams be cancelled; INTERNAL, naming `field`.
  void ExpectGarbled(size_t index, const std::string& message,
                     const std::string& field) {
    at(index).Send(message);
    for (const auto& stream : transport_.streams.all) {
      EXPECT_TRUE(stream->cancelled || stream->ended);
      EXPECT_FALSE(result_.has_value());
      if (!stream->ended) stream->End(absl::CancelledError(""));
      executor_.RunReady();
    }
    ASSERT_TRUE(result_.has_value());
    EXPECT_TRUE(absl::IsInternal(result_->status)) << result_->status;
    ASSERT_EQ(wire::FieldViolations(result_->status).size(), 1);
    EXPECT_EQ(wire::FieldViolations(result_->status)[0].field, field);
  }

  ChunkedForward forward_;
  ManualExecutor executor_;
  FakeTransport transport_;
  TransferSpec spec_;
  Report report_;
  ReceivedInputs received_;
  std::shared_ptr<Transfer> transfer_;
  std::optional<TransferResult> result_;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_TRANSFER_FIXTURE_H_
