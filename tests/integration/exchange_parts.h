#ifndef ATTND_TESTS_INTEGRATION_EXCHANGE_PARTS_H_
#define ATTND_TESTS_INTEGRATION_EXCHANGE_PARTS_H_

// What a client sends in small Exchanges, in text format.

#include <cstdint>
#include <string>

#include "attn/v1/attention.pb.h"

namespace attnd::testing {

inline constexpr int64_t kChunk = 64 << 10;

attn::v1::ExchangeRequest Part(const std::string& text);

// A forward of which Q, K and V, of two chunks each, are streamed.
std::string Header();
// A backward of which dK and dV, of two chunks each, are streamed.
std::string BackwardHeader();
// The chunk `index` of a tensor of two, all of it `byte`.
std::string Chunk(int tensor, int64_t index, char byte = 'a');

// "1: 0 to 2": of tensor 1 chunks 0 and 1.
std::string Describe(const attn::v1::Missing& missing);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_EXCHANGE_PARTS_H_
