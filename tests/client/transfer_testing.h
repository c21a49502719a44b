#ifndef ATTND_TESTS_CLIENT_TRANSFER_TESTING_H_
#define ATTND_TESTS_CLIENT_TRANSFER_TESTING_H_

// A forward whose tensors travel in chunks, and what a server makes of its
// messages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "attn/v1/attention.pb.h"
#include "client/messages.h"
#include "proto/wire/chunk_grid.h"

namespace attnd::client {

inline constexpr int64_t kChunk = wire::kMinChunkBytes;

// Q has 6 chunks, K has 2, V goes in the header; O has 3, LSE comes in the
// response.
class ChunkedForward {
 public:
  explicit ChunkedForward(uint32_t seed = 1) {
    std::mt19937 rng(seed);
    for (std::string* bytes : {&q, &k, &v, &o, &lse}) {
      for (size_t at = 0; at < bytes->size(); at += sizeof(uint32_t)) {
        const uint32_t word = rng();
        std::memcpy(bytes->data() + at, &word, sizeof(word));
      }
    }
    call.q = {DType::kF32, {1, 3000, 1, 32}, q.data()};
    call.k = {DType::kF32, {1, 800, 1, 32}, k.data()};
    call.v = {DType::kF32, {1, 800, 1, 16}, v.data()};
    call.o = {DType::kF32, {1, 3000, 1, 16}, got_o.data()};
    call.lse = {DType::kF32, {1, 1, 3000}, got_lse.data()};
  }

  // What the response is.
  std::string Response() const {
    attn::v1::ExchangeResponse message;
    auto& response = *message.mutable_forward();
    SetShape(call.o.shape, *response.mutable_o());
    response.mutable_o()->mutable_streamed();
    SetShape(call.lse.shape, *response.mutable_lse());
    response.mutable_lse()->set_data(lse);
    response.mutable_report()->set_device("cpu:0 test");
    response.mutable_report()->mutable_phases()->set_receive_ns(5);
    return message.SerializeAsString();
  }

  std::string q = std::string(3000 * 32 * 4, '\0');
  std::string k = std::string(800 * 32 * 4, '\0');
  std::string v = std::string(800 * 16 * 4, '\0');
  std::string o = std::string(3000 * 16 * 4, '\0');  // as the server has them
  std::string lse = std::string(3000 * 4, '\0');
  std::string got_o =
      std::string(3000 * 16 * 4, '\xff');  // the caller's memory
  std::string got_lse = std::string(3000 * 4, '\xff');
  ForwardCall call;

 private:
  static void SetShape(const std::vector<int64_t>& shape,
                       attn::v1::Tensor& tensor) {
    tensor.set_dtype(attn::v1::DATA_TYPE_F32);
    tensor.mutable_shape()->Add(shape.begin(), shape.end());
  }
};

inline std::string Admitted(int streams, int64_t chunk_bytes = kChunk) {
  attn::v1::ExchangeResponse message;
  message.mutable_admitted()->set_transfer("sixteen secret b");
  message.mutable_admitted()->set_streams(streams);
  message.mutable_admitted()->set_chunk_bytes(chunk_bytes);
  return message.SerializeAsString();
}

// Chunk number `index` of a result of `bytes`.
inline std::string ChunkOf(int tensor, const std::string& bytes,
                           int64_t index) {
  attn::v1::ExchangeResponse message;
  message.mutable_chunk()->set_tensor(tensor);
  message.mutable_chunk()->set_offset(index * kChunk);
  message.mutable_chunk()->set_data(bytes.substr(index * kChunk, kChunk));
  return message.SerializeAsString();
}

inline std::string MissingChunks(int tensor, int64_t offset, int64_t bytes) {
  attn::v1::ExchangeResponse message;
  auto& range = *message.mutable_missing()->add_ranges();
  range.set_tensor(tensor);
  range.set_offset(offset);
  range.set_bytes(bytes);
  return message.SerializeAsString();
}

// What a server has received.
struct ReceivedInputs {
  void Take(const std::string& bytes) {
    attn::v1::ExchangeRequest message;
    ASSERT_TRUE(message.ParseFromString(bytes));
    if (message.has_header()) header = message.header();
    if (message.has_join()) joins.push_back(message.join().transfer());
    if (message.has_inputs_sent()) {
      ASSERT_FALSE(inputs_sent.has_value()) << "said twice";
      inputs_sent = message.inputs_sent().streams();
    }
    if (message.has_missing()) missing.push_back(message.missing());
    if (!message.has_chunk()) return;
    const attn::v1::Chunk& chunk = message.chunk();
    ASSERT_EQ(chunk.offset() % kChunk, 0);
    ++chunks[{chunk.tensor(), chunk.offset() / kChunk}];
    std::string& tensor = tensors[chunk.tensor()];
    tensor.resize(
        std::max<size_t>(tensor.size(), chunk.offset() + chunk.data().size()));
    std::copy(chunk.data().begin(), chunk.data().end(),
              tensor.begin() + chunk.offset());
  }

  void ExpectAllOf(const ChunkedForward& forward) {
    EXPECT_EQ(tensors[attn::v1::ForwardRequest::kQFieldNumber], forward.q);
    EXPECT_EQ(tensors[attn::v1::ForwardRequest::kKFieldNumber], forward.k);
    EXPECT_EQ(header.forward().v().data(), forward.v);
    EXPECT_EQ(chunks.size(), 8);
  }

  attn::v1::ExchangeHeader header;
  std::vector<std::string> joins;
  std::map<std::pair<int, int64_t>, int> chunks;  // tensor, index: how often
  std::map<int, std::string> tensors;
  std::optional<int> inputs_sent;
  std::vector<attn::v1::Missing> missing;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_TRANSFER_TESTING_H_
