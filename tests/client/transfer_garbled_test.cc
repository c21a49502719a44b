// Servers that send what does not belong.

#include <cstdint>
#include <string>

#include "proto/wire/wire_format.h"
#include "tests/client/transfer_fixture.h"

namespace attnd::client {
namespace {

using TransferGarbledTest = TransferTest;

TEST_F(TransferGarbledTest, GrantsThatCannotBe) {
  struct {
    int streams;
    int64_t chunk_bytes;
    const char* field;
  } const grants[] = {{0, kChunk, "admitted.streams"},
                      {3, kChunk, "admitted.streams"},
                      {-1, kChunk, "admitted.streams"},
                      {2, 0, "admitted.chunk_bytes"},
                      {2, kChunk / 2, "admitted.chunk_bytes"},
                      {2, kChunk + 1, "admitted.chunk_bytes"},
                      {2, wire::kMaxChunkBytes * 2, "admitted.chunk_bytes"}};
  for (const auto& grant : grants) {
    transport_.streams.all.clear();
    result_.reset();
    Start(2);
    Take(0);
    ExpectGarbled(0, Admitted(grant.streams, grant.chunk_bytes), grant.field);
  }
}

TEST_F(TransferGarbledTest, AGrantTwice) {
  StartAdmitted(1);
  ExpectGarbled(0, Admitted(1), "admitted");
}

TEST_F(TransferGarbledTest, WhatComesBeforeItsTime) {
  Start(1);
  Take(0);
  ExpectGarbled(0, ChunkOf(kO, forward_.o, 0), "chunk");
  transport_.streams.all.clear();
  result_.reset();
  StartAdmitted(1);
  ExpectGarbled(0, MissingChunks(kQ, 0, kChunk), "missing");
}

TEST_F(TransferGarbledTest, ChunksOffTheGrid) {
  attn::v1::ExchangeResponse message;
  attn::v1::Chunk& chunk = *message.mutable_chunk();
  const auto expect = [&](const char* field) {
    transport_.streams.all.clear();
    received_ = {};
    result_.reset();
    StartSent(2);
    ExpectGarbled(1, message.SerializeAsString(), field);
  };
  chunk.set_tensor(kO);
  chunk.set_offset(1);
  chunk.set_data(std::string(kChunk, 'x'));
  expect("chunk.offset");
  chunk.set_offset(-kChunk);
  expect("chunk.offset");
  chunk.set_offset(3 * kChunk);
  expect("chunk.offset");
  chunk.set_offset(2 * kChunk);
  expect("chunk.data");
  chunk.set_offset(0);
  chunk.set_data(std::string(kChunk - 1, 'x'));
  expect("chunk.data");
  chunk.set_data(std::string(kChunk, 'x'));
  chunk.set_tensor(2);  // LSE, which is in the response
  expect("chunk.tensor");
  EXPECT_EQ(forward_.got_o.find_first_not_of('\xff'), std::string::npos);
}

TEST_F(TransferGarbledTest, MissingInputsThatAreNone) {
  const auto expect = [&](int tensor, int64_t offset, int64_t bytes,
                          const char* field) {
    transport_.streams.all.clear();
    received_ = {};
    result_.reset();
    StartSent(1);
    ExpectGarbled(0, MissingChunks(tensor, offset, bytes), field);
  };
  expect(kQ, 1, kChunk, "missing.ranges");
  expect(kQ, 0, kChunk - 1, "missing.ranges");
  expect(kQ, 0, 0, "missing.ranges");
  expect(kQ, 5 * kChunk, kChunk, "missing.ranges");
  expect(3, 0, kChunk, "missing.ranges.tensor");  // V, which was in the header
}

TEST_F(TransferGarbledTest, MoreMissingThanThereIs) {
  StartSent(1);
  attn::v1::ExchangeResponse message;
  for (int i = 0; i < 9; ++i) {
    auto& range = *message.mutable_missing()->add_ranges();
    range.set_tensor(kQ);
    range.set_bytes(kChunk);
  }
  ExpectGarbled(0, message.SerializeAsString(), "missing.ranges");
}

TEST_F(TransferGarbledTest, ResponsesOnAStreamThatJoined) {
  StartSent(2);
  ExpectGarbled(1, forward_.Response(), "part");
}

TEST_F(TransferGarbledTest, ResponsesThatDoNotFit) {
  const auto expect = [&](auto change, const char* field) {
    transport_.streams.all.clear();
    received_ = {};
    result_.reset();
    StartSent(2);
    attn::v1::ExchangeResponse message;
    ASSERT_TRUE(message.ParseFromString(forward_.Response()));
    change(message);
    ExpectGarbled(0, message.SerializeAsString(), field);
  };
  expect([](auto& m) { m.mutable_forward()->clear_o(); }, "o");
  expect([](auto& m) { m.mutable_forward()->mutable_o()->set_data("x"); }, "o");
  expect([](auto& m) { m.mutable_forward()->mutable_o()->clear_streamed(); },
         "o");
  expect([](auto& m) { m.mutable_forward()->mutable_o()->set_shape(1, 3); },
         "o.shape");
  expect(
      [](auto& m) {
        m.mutable_forward()->mutable_o()->set_dtype(attn::v1::DATA_TYPE_BF16);
      },
      "o.dtype");
  expect([](auto& m) { m.mutable_forward()->mutable_lse()->set_data("x"); },
         "lse.data");
  expect(
      [](auto& m) { m.mutable_forward()->mutable_lse()->mutable_streamed(); },
      "lse");
  expect([](auto& m) { m.mutable_backward()->mutable_dq(); }, "part");
}

TEST_F(TransferGarbledTest, AResponseTwice) {
  StartSent(1);
  at(0).Send(forward_.Response());
  ExpectGarbled(0, forward_.Response(), "response");
}

TEST_F(TransferGarbledTest, BytesThatAreNoMessage) {
  StartSent(2);
  ExpectGarbled(1, "\x1a\x05\x08", "ExchangeResponse");
}

TEST_F(TransferGarbledTest, WhatALaterServerMaySayIsPassedOver) {
  StartSent(1);
  at(0).Send("\xa2\x06\x01x");  // field 100
  EXPECT_FALSE(at(0).cancelled);
  // A chunk whose fields come in another order, with one that is unknown in it
  // and one behind it.
  std::string chunk, message;
  wire::AppendField(15, forward_.o.substr(0, kChunk), chunk);
  wire::AppendField(100, "unknown", chunk);
  wire::AppendTag({1, wire::WireType::kVarint}, chunk);
  wire::AppendVarint(kO, chunk);
  wire::AppendField(3, chunk, message);
  wire::AppendField(100, "unknown", message);
  at(0).Send(message);
  EXPECT_FALSE(at(0).cancelled);
  EXPECT_EQ(forward_.got_o.substr(0, kChunk), forward_.o.substr(0, kChunk));
}

}  // namespace
}  // namespace attnd::client
