// A transfer as it ought to go, and what the client makes of streams that break
// and of cancelling.

#include "client/transfer.h"

#include <string>
#include <vector>

#include "tests/client/transfer_fixture.h"

namespace attnd::client {
namespace {

using ::testing::ElementsAre;

TEST_F(TransferTest, OneStreamCarriesAll) {
  Start(1);
  ASSERT_EQ(transport_.streams.size(), 1);
  EXPECT_EQ(at(0).method, "/attn.v1.AttentionService/Exchange");
  EXPECT_EQ(at(0).headers.deadline, executor_.Now() + absl::Minutes(1));
  Take(0);
  EXPECT_FALSE(at(0).writing) << "sends before it may";
  const attn::v1::ForwardRequest& request = received_.header.forward();
  EXPECT_EQ(received_.header.streams(), 1);
  EXPECT_TRUE(request.q().has_streamed());
  EXPECT_THAT(request.q().shape(), ElementsAre(1, 3000, 1, 32));
  EXPECT_TRUE(request.k().has_streamed());
  EXPECT_TRUE(request.v().has_data());
  EXPECT_TRUE(request.o().want());
  EXPECT_TRUE(request.o().has_streamed());
  EXPECT_TRUE(request.lse().want());
  EXPECT_FALSE(request.lse().has_streamed());

  at(0).Send(Admitted(1));
  for (int i = 0; i < 9; ++i) Take(0);
  received_.ExpectAllOf(forward_);
  EXPECT_EQ(received_.inputs_sent, 0);
  EXPECT_FALSE(at(0).writing);
  EXPECT_FALSE(at(0).closed) << "it may be asked for more";

  for (const int chunk : {2, 0, 1}) SendResult(0, chunk);
  EXPECT_FALSE(at(0).closed);
  at(0).Send(forward_.Response());
  EXPECT_TRUE(at(0).closed);
  EXPECT_FALSE(result_.has_value());
  End(0);
  ExpectDone();
  EXPECT_TRUE(result_->admitted);
  EXPECT_EQ(result_->streams, 1);
  EXPECT_FALSE(at(0).cancelled);
}

TEST_F(TransferTest, ChunksGoToWhicheverStreamIsFree) {
  StartAdmitted(3);
  EXPECT_THAT(received_.joins,
              ElementsAre("sixteen secret b", "sixteen secret b"));
  // They are on connections of their own.
  EXPECT_EQ(at(1).turn, at(0).turn + 1);
  EXPECT_EQ(at(2).turn, at(0).turn + 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at(i).writing) << i;
  // The first stream is stuck: the second carries nearly all.
  for (int i = 0; i < 5; ++i) Take(1);
  Take(2);
  EXPECT_TRUE(at(1).writing != at(2).writing || at(2).closed);
  while (at(1).writing || at(2).writing) Take(at(1).writing ? 1 : 2);
  EXPECT_TRUE(at(1).closed && at(2).closed);
  EXPECT_EQ(received_.chunks.size(), 7);
  EXPECT_FALSE(received_.inputs_sent.has_value());
  Take(0);
  received_.ExpectAllOf(forward_);
  Take(0);
  EXPECT_EQ(received_.inputs_sent, 2);

  SendResult(2, 0);
  at(0).Send(forward_.Response());
  SendResult(1, 2);
  End(1);
  SendResult(2, 1);
  EXPECT_TRUE(at(0).closed);
  End(2);
  End(0);
  ExpectDone();
  EXPECT_EQ(result_->streams, 3);
}

TEST_F(TransferTest, TheServerMayGrantFewerStreams) {
  Start(4);
  Take(0);
  EXPECT_EQ(received_.header.streams(), 4);
  at(0).Send(Admitted(2));
  EXPECT_EQ(transport_.streams.size(), 2);
}

TEST_F(TransferTest, DoesNotWaitForStreamsThatJoinLate) {
  Start(2);
  Take(0);
  at(0).Send(Admitted(2));
  for (int i = 0; i < 9; ++i) Take(0);
  EXPECT_EQ(received_.inputs_sent, 0) << "counts one that has not joined";
  // It may still carry results.
  Take(1);
  EXPECT_TRUE(at(1).closed);
  SendResult(1, 0);
  SendResult(1, 1);
  SendResult(1, 2);
  at(0).Send(forward_.Response());
  End(1);
  End(0);
  ExpectDone();
}

TEST_F(TransferTest, AStreamThatHasNotJoinedWhenAllIsHereIsCancelled) {
  Start(2);
  Take(0);
  at(0).Send(Admitted(2));
  for (int i = 0; i < 9; ++i) Take(0);
  for (int i = 0; i < 3; ++i) SendResult(0, i);
  EXPECT_FALSE(at(1).cancelled);
  at(0).Send(forward_.Response());
  EXPECT_TRUE(at(1).cancelled);
  EXPECT_FALSE(at(0).cancelled);
  End(0);
  EXPECT_FALSE(result_.has_value()) << "a stream has not ended";
  End(1, absl::CancelledError(""));
  ExpectDone();
  EXPECT_EQ(result_->streams, 1);
}

TEST_F(TransferTest, WithoutASecondConnectionTheFirstCarriesAll) {
  Start(2);
  Take(0);
  transport_.streams.failure = absl::UnavailableError("no server");
  at(0).Send(Admitted(2));
  for (int i = 0; i < 9; ++i) Take(0);
  EXPECT_EQ(received_.inputs_sent, 0);
  received_.ExpectAllOf(forward_);
}

TEST_F(TransferTest, AStreamThatBreaksBeforeItJoinsIsNotMissed) {
  Start(2);
  Take(0);
  at(0).Send(Admitted(2));
  at(1).TakeWrite(false);
  End(1, absl::UnavailableError("gone"));
  for (int i = 0; i < 9; ++i) Take(0);
  EXPECT_EQ(received_.inputs_sent, 0);
  received_.ExpectAllOf(forward_);
}

TEST_F(TransferTest, AChunkThatAStreamFailedToSendGoesOverAnother) {
  for (const bool write_fails : {true, false}) {
    SCOPED_TRACE(write_fails);
    transport_.streams.all.clear();
    received_ = {};
    StartAdmitted(2);
    Take(1);
    ASSERT_TRUE(at(1).writing);
    if (write_fails) {
      at(1).TakeWrite(false);
    } else {
      // It ends with a write outstanding.
      at(1).written.pop_back();
    }
    End(1, absl::UnavailableError("gone"));
    while (at(0).writing) Take(0);
    received_.ExpectAllOf(forward_);
    EXPECT_EQ(received_.inputs_sent, 0) << "it broke";
    for (const auto& [chunk, times] : received_.chunks) EXPECT_EQ(times, 1);
    for (int i = 0; i < 3; ++i) SendResult(0, i);
    at(0).Send(forward_.Response());
    End(0);
    ExpectDone();
    EXPECT_EQ(result_->streams, 2);
    result_.reset();
  }
}

// The main stream has nothing to do but wait for another's last chunk.
TEST_F(TransferTest, TheLastChunkMayBeTheOneThatFails) {
  StartAdmitted(2);
  while (at(0).writing) Take(0);
  ASSERT_TRUE(at(1).writing);
  EXPECT_FALSE(received_.inputs_sent.has_value());
  at(1).TakeWrite(false);
  ASSERT_TRUE(at(0).writing);
  Take(0);
  received_.ExpectAllOf(forward_);
  End(1, absl::UnavailableError("gone"));
  Take(0);
  EXPECT_EQ(received_.inputs_sent, 0);
}

TEST_F(TransferTest, InputsThatDidNotArriveAreSentAgainOnTheMainStream) {
  StartSent(2);
  End(1);
  at(0).Send(MissingChunks(kQ, kChunk, 2 * kChunk));
  Take(0);
  Take(0);
  EXPECT_FALSE(at(0).writing);
  at(0).Send(MissingChunks(kK, kChunk, forward_.k.size() - kChunk));
  Take(0);
  EXPECT_FALSE(at(0).writing);
  EXPECT_EQ((received_.chunks[{kQ, 1}]), 2);
  EXPECT_EQ((received_.chunks[{kQ, 2}]), 2);
  EXPECT_EQ((received_.chunks[{kK, 1}]), 2);
  received_.ExpectAllOf(forward_);
  for (int i = 0; i < 3; ++i) SendResult(0, i);
  at(0).Send(forward_.Response());
  End(0);
  ExpectDone();
}

TEST_F(TransferTest, ResultsThatDidNotArriveAreAskedFor) {
  StartSent(3);
  SendResult(1, 1);
  SendResult(0, 1);  // again
  at(0).Send(forward_.Response());
  End(1, absl::UnavailableError("broke"));
  EXPECT_FALSE(at(0).writing) << "they may come over the other";
  End(2);
  ASSERT_TRUE(at(0).writing);
  Take(0);
  ASSERT_EQ(received_.missing.size(), 1);
  ASSERT_EQ(received_.missing[0].ranges_size(), 2);
  EXPECT_EQ(received_.missing[0].ranges(0).tensor(), kO);
  EXPECT_EQ(received_.missing[0].ranges(0).offset(), 0);
  EXPECT_EQ(received_.missing[0].ranges(0).bytes(), kChunk);
  EXPECT_EQ(received_.missing[0].ranges(1).offset(), 2 * kChunk);
  EXPECT_EQ(received_.missing[0].ranges(1).bytes(),
            forward_.o.size() - 2 * kChunk);
  SendResult(0, 2);
  EXPECT_FALSE(at(0).writing) << "asks again";
  SendResult(0, 0);
  EXPECT_TRUE(at(0).closed);
  End(0);
  ExpectDone();
}

TEST_F(TransferTest, AServerThatEndsBeforeAllIsThereIsWrong) {
  StartSent(1);
  at(0).Send(forward_.Response());
  SendResult(0, 0);
  End(0);
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsInternal(result_->status)) << result_->status;
}

TEST_F(TransferTest, WithoutAConnectionItEndsOnTheExecutor) {
  transport_.streams.failure = absl::UnavailableError("no server");
  Start(1);
  EXPECT_FALSE(result_.has_value());
  executor_.RunReady();
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status, transport_.streams.failure);
  EXPECT_FALSE(result_->admitted);
}

TEST_F(TransferTest, ARefusalIsItsStatus) {
  Start(3);
  Take(0);
  End(0, absl::ResourceExhaustedError("full"));
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status, absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(result_->admitted);
}

// Wherever the transfer stands, the end of the main stream is its end, and
// cancelling reaches every stream; it is done once they all have ended.
class TransferEndTest : public TransferTest,
                        public ::testing::WithParamInterface<int> {
 protected:
  void StartUntil(int state) {
    switch (state) {
      case 0:
        return Start(3);
      case 1:
        Start(3);
        return Take(0);
      case 2:
        return StartAdmitted(3);
      case 3:
        StartAdmitted(3);
        return Take(1);
      case 4:
        return StartSent(3);
      case 5:
        StartSent(3);
        return SendResult(1, 0);
      default:
        StartSent(3);
        for (int i = 0; i < 3; ++i) SendResult(i, i);
        at(0).Send(forward_.Response());
        ASSERT_TRUE(at(0).closed);
    }
  }
};

TEST_P(TransferEndTest, WhenTheMainStreamBreaksAllEnds) {
  StartUntil(GetParam());
  End(0, absl::UnavailableError("broke"));
  for (size_t i = 1; i < transport_.streams.size(); ++i) {
    EXPECT_FALSE(result_.has_value());
    EXPECT_TRUE(at(i).cancelled);
    // What comes now is for nobody.
    const std::string before = forward_.got_o;
    SendResult(i, 2);
    EXPECT_EQ(forward_.got_o, before);
    if (at(i).writing) at(i).TakeWrite();
    EXPECT_FALSE(at(i).writing);
    End(i, absl::CancelledError(""));
  }
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status, absl::UnavailableError("broke"));
}

TEST_P(TransferEndTest, CancellingReachesEveryStream) {
  StartUntil(GetParam());
  transfer_->Cancel();
  transfer_->Cancel();
  for (int i = transport_.streams.size() - 1; i >= 0; --i) {
    EXPECT_TRUE(at(i).cancelled) << i;
    EXPECT_FALSE(result_.has_value());
    End(i, absl::CancelledError("cancelled"));
  }
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status, absl::CancelledError("cancelled"));
}

INSTANTIATE_TEST_SUITE_P(States, TransferEndTest, ::testing::Range(0, 7));

}  // namespace
}  // namespace attnd::client
