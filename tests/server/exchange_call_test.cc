// What goes right, and what a client may do in any order. What goes wrong is in
// exchange_end_test.cc.

#include "server/front/exchange_call.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/exchange_testing.h"

namespace attnd::server {
namespace {

TEST_F(ExchangeTest, AForwardGoesThereAndBackInChunks) {
  const Tensors tensors(1000);  // of 3.9 chunks
  auto stream = Begin(tensors);
  EXPECT_EQ(admitted_.streams(), 1);
  EXPECT_GT(scheduler_->stats().account_bytes, 0);
  SendAll(*stream, tensors);
  std::string o(tensors.q.size(), '\xff');
  const pb::ForwardResponse response = TakeResults(*stream, o);
  EXPECT_EQ(o, tensors.q);
  EXPECT_TRUE(response.o().has_streamed());
  EXPECT_THAT(response.o().shape(), ::testing::ElementsAre(1, 1000, 1, 64));
  EXPECT_EQ(response.lse().data(), std::string(4000, '\0'));
  EXPECT_GT(response.report().phases().receive_ns(), 0);
  EXPECT_EQ(response.report().batch_requests(), 1);
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
  stream->Close();
  ExpectNothingHeld();
  EXPECT_TRUE(admitted_calls_.WaitForNone(absl::InfinitePast()));
}

TEST_F(ExchangeTest, ChunksComeInAnyOrderOverAnyStream) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const Tensors tensors(1 + random() % 2000, round);
    const int joins = static_cast<int>(random() % 4);
    auto main = Begin(tensors, 4);
    ASSERT_EQ(admitted_.streams(), 4);
    std::vector<std::unique_ptr<TestStream>> joined;
    for (int i = 0; i < joins; ++i) joined.push_back(Join());
    std::vector<pb::ExchangeRequest> chunks;
    for (int number : {1, 2, 3}) {
      for (int64_t i = 0; i < Chunks(tensors); ++i) {
        chunks.push_back(Chunk(tensors, number, i));
      }
    }
    std::shuffle(chunks.begin(), chunks.end(), random);
    for (const pb::ExchangeRequest& chunk : chunks) {
      const size_t to = random() % (joins + 1);
      (to == 0 ? *main : *joined[to - 1]).Send(chunk);
    }
    for (const auto& stream : joined) stream->HalfClose();
    main->Send(InputsSent(joins));

    std::string o(tensors.q.size(), '\xff');
    bool answered = false;
    while (!answered) {
      for (const auto& stream : joined) {
        if (stream->fake().is_writing()) Put(stream->Take().chunk(), o);
      }
      if (!main->fake().is_writing()) continue;
      const pb::ExchangeResponse response = main->Take();
      if (response.has_chunk()) Put(response.chunk(), o);
      answered = response.has_forward();
    }
    for (const auto& stream : joined) {
      TakeRest(*stream, o);
    }
    main->HalfClose();
    EXPECT_EQ(main->AwaitEnd(), absl::OkStatus());
    EXPECT_EQ(o, tensors.q) << round;
    joined.clear();
    main->Close();
    ExpectNothingHeld();
  }
}

TEST_F(ExchangeTest, AClientMayEndItsSideAtOnce) {
  const Tensors tensors(500);
  auto stream = Begin(tensors);
  for (int number : {1, 2, 3}) {
    for (int64_t i = 0; i < Chunks(tensors); ++i) {
      stream->Send(Chunk(tensors, number, i));
    }
  }
  // Without inputs_sent, too: all is there.
  std::string o(tensors.q.size(), '\xff');
  TakeResults(*stream, o);
  EXPECT_EQ(o, tensors.q);
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeTest, TensorsMayBeInTheHeader) {
  const Tensors tensors(500);
  pb::ExchangeRequest header = Header(tensors);
  header.mutable_header()->mutable_forward()->mutable_q()->set_data(tensors.q);
  header.mutable_header()->mutable_forward()->mutable_k()->set_data(tensors.k);
  auto stream = Open();
  stream->Send(header);
  EXPECT_TRUE(stream->Take().has_admitted());
  for (int64_t i = 0; i < Chunks(tensors); ++i) {
    stream->Send(Chunk(tensors, 3, i));
  }
  std::string o(tensors.q.size(), '\xff');
  TakeResults(*stream, o);
  EXPECT_EQ(o, tensors.q);
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeTest, NothingNeedsToBeStreamed) {
  const Tensors tensors(10);
  pb::ExchangeRequest header = Header(tensors);
  pb::ForwardRequest& forward = *header.mutable_header()->mutable_forward();
  forward.mutable_q()->set_data(tensors.q);
  forward.mutable_k()->set_data(tensors.k);
  forward.mutable_v()->set_data(tensors.v);
  forward.clear_o();
  auto stream = Open();
  stream->Send(header);
  EXPECT_TRUE(stream->Take().has_admitted());
  EXPECT_EQ(stream->Take().forward().o().data(), tensors.q);
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeTest, TensorsWithoutElementsHaveNoChunks) {
  const Tensors tensors(0);
  auto stream = Begin(tensors);
  EXPECT_TRUE(stream->Take().has_forward());
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeTest, ABackwardGoesThereAndBackToo) {
  const Tensors tensors(600);
  pb::ExchangeRequest request = Header(tensors);
  pb::ExchangeHeader header = request.header();
  pb::BackwardRequest& backward = *request.mutable_header()->mutable_backward();
  *backward.mutable_q() = header.forward().q();
  *backward.mutable_k() = header.forward().k();
  *backward.mutable_v() = header.forward().v();
  *backward.mutable_d_o() = header.forward().q();
  *backward.mutable_o() = header.forward().q();
  pb::Tensor& lse = *backward.mutable_lse();
  lse.set_dtype(pb::DATA_TYPE_F32);
  for (int dim : {1, 1, 600}) lse.add_shape(dim);
  lse.set_data(std::string(2400, '\0'));
  for (pb::OutputSpec* output :
       {backward.mutable_dq(), backward.mutable_dk(), backward.mutable_dv()}) {
    output->mutable_streamed();
  }
  auto stream = Open();
  stream->Send(request);
  EXPECT_TRUE(stream->Take().has_admitted());
  for (int number : {1, 2, 3, 6, 8}) {
    for (int64_t i = 0; i < Chunks(tensors); ++i) {
      pb::ExchangeRequest chunk = Chunk(tensors, std::min(number, 3), i);
      chunk.mutable_chunk()->set_tensor(number);
      stream->Send(chunk);
    }
  }
  std::string results[4];
  for (std::string& result : results) result.assign(tensors.q.size(), '\xff');
  for (;;) {
    const pb::ExchangeResponse response = stream->Take();
    if (response.has_backward()) break;
    const pb::Chunk& chunk = response.chunk();
    ASSERT_GE(chunk.tensor(), 1);
    ASSERT_LE(chunk.tensor(), 3);
    results[chunk.tensor()].replace(chunk.offset(), chunk.data().size(),
                                    chunk.data());
  }
  for (int number : {1, 2, 3}) EXPECT_EQ(results[number], tensors.of(number));
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeTest, StreamsAndChunksAreGrantedWithinTheirBounds) {
  struct Case {
    int streams;
    int64_t chunk_bytes;
    int granted;
    int64_t granted_bytes;
  };
  for (const Case& c :
       std::vector<Case>{{0, 0, 1, TransferTable::kPreferredChunkBytes},
                         {1, 1, 1, 64 << 10},
                         {3, 100'000, 3, 64 << 10},
                         {4, 1 << 20, 4, 1 << 20},
                         {100, 3 << 20, 4, 2 << 20},
                         {2, int64_t{1} << 60, 2, 4 << 20}}) {
    const Tensors tensors(100);
    pb::ExchangeRequest header = Header(tensors, c.streams);
    header.mutable_header()->set_chunk_bytes(c.chunk_bytes);
    auto stream = Open();
    stream->Send(header);
    const pb::Admitted admitted = stream->Take().admitted();
    EXPECT_EQ(admitted.streams(), c.granted);
    EXPECT_EQ(admitted.chunk_bytes(), c.granted_bytes);
  }
  ExpectNothingHeld();
}

// What a message may take while it arrives is shared as other memory is.
TEST_F(ExchangeTest, WhereMemoryIsShortFewerStreamsAndSmallerChunksAreGranted) {
  auto other = uploads_.Enter({"other", "x"}, 16 * kMiB, nullptr);
  auto another = uploads_.Enter({"other", "x"}, 16 * kMiB, nullptr);
  auto third = uploads_.Enter({"another", "x"}, 16 * kMiB, nullptr);
  auto fourth = uploads_.Enter({"third", "x"}, 12 * kMiB, nullptr);
  ASSERT_TRUE(fourth.ok() && (*fourth)->granted());
  const Tensors tensors(100);
  pb::ExchangeRequest header = Header(tensors, 4);
  header.mutable_header()->set_chunk_bytes(4 << 20);
  auto stream = Open();
  stream->Send(header);
  const pb::Admitted admitted = stream->Take().admitted();
  EXPECT_EQ(admitted.streams(), 1);
  EXPECT_EQ(admitted.chunk_bytes(), 2 << 20);  // and a window
}

TEST_F(ExchangeTest, WhatDidNotArriveIsSentAgain) {
  const Tensors tensors(1000);
  auto stream = Begin(tensors);
  SendAll(*stream, tensors);
  std::string o(tensors.q.size(), '\xff');
  TakeResults(*stream, o);
  pb::ExchangeRequest missing;
  auto& range = *missing.mutable_missing()->add_ranges();
  range.set_tensor(1);
  range.set_offset(kChunk);
  range.set_bytes(2 * kChunk);
  auto& last = *missing.mutable_missing()->add_ranges();
  last.set_tensor(1);
  last.set_offset(3 * kChunk);
  last.set_bytes(1000 * kRowBytes - 3 * kChunk);
  stream->Send(missing);
  std::string again(tensors.q.size(), '\xff');
  for (int i = 0; i < 3; ++i) Put(stream->Take().chunk(), again);
  EXPECT_EQ(again.substr(kChunk), tensors.q.substr(kChunk));
  EXPECT_EQ(again.substr(0, kChunk), std::string(kChunk, '\xff'));
  stream->HalfClose();
  EXPECT_EQ(stream->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeTest, AStreamThatBreaksWithItsChunksEndsNothing) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const Tensors tensors(1500, round);
    auto main = Begin(tensors, 3);
    auto one = Join(), two = Join();
    bool broken = false;
    const int64_t breaks_at = random() % (3 * Chunks(tensors));
    int64_t sent = 0;
    for (int number : {1, 2, 3}) {
      for (int64_t i = 0; i < Chunks(tensors); ++i, ++sent) {
        if (sent == breaks_at) {
          one->Break();
          broken = true;
        }
        TestStream& to = random() % 3 == 0 ? *main : sent % 2 ? *one : *two;
        // What goes over the broken one is lost.
        if (&to == one.get() && broken) continue;
        to.Send(Chunk(tensors, number, i));
      }
    }
    two->HalfClose();
    main->Send(InputsSent(1));
    std::string o(tensors.q.size(), '\xff');
    bool answered = false;
    while (!answered) {
      if (two->fake().is_writing()) {
        Put(two->Take().chunk(), o);
        continue;
      }
      if (!main->fake().is_writing()) continue;
      const pb::ExchangeResponse response = main->Take();
      if (response.has_chunk()) Put(response.chunk(), o);
      for (const auto& range : response.missing().ranges()) {
        for (int64_t at = range.offset(); at < range.offset() + range.bytes();
             at += kChunk) {
          main->Send(Chunk(tensors, range.tensor(), at / kChunk));
        }
      }
      answered = response.has_forward();
    }
    TakeRest(*two, o);
    main->HalfClose();
    EXPECT_EQ(main->AwaitEnd(), absl::OkStatus());
    EXPECT_EQ(o, tensors.q) << round;
    one->Close();
    two->Close();
    main->Close();
    ExpectNothingHeld();
  }
}

// A chunk that was on its way to a stream which breaks leaves over another.
TEST_F(ExchangeTest, AResultThatDoesNotLeaveGoesOverAnotherStream) {
  const Tensors tensors(1000);
  auto main = Begin(tensors, 2);
  auto joined = Join();
  SendAll(*main, tensors);
  const pb::Chunk lost = joined->fake().AwaitWritten().chunk();
  joined->Break();
  std::string o(tensors.q.size(), '\xff');
  TakeResults(*main, o);
  EXPECT_EQ(o, tensors.q);
  main->HalfClose();
  EXPECT_EQ(main->AwaitEnd(), absl::OkStatus());
}

TEST_F(ExchangeTest, AHeaderThatFindsNoMemoryWaitsForIt) {
  SchedulerOptions options = OneLane();
  options.memory_bytes = 2 * kMiB;
  UseScheduler(options, {&backend_});
  const Tensors tensors(1500);  // of 1.5 MiB with its result
  auto first = Begin(tensors);
  auto second = Open({"other", "b"});
  second->Send(Header(tensors));
  EXPECT_FALSE(second->fake().is_writing());
  SendAll(*first, tensors);
  std::string o(tensors.q.size(), '\xff');
  TakeResults(*first, o);
  EXPECT_FALSE(second->fake().is_writing());
  first->HalfClose();
  EXPECT_EQ(first->AwaitEnd(), absl::OkStatus());
  first->Close();
  EXPECT_TRUE(second->Take().has_admitted());
}

}  // namespace
}  // namespace attnd::server
