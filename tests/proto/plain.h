#ifndef ATTND_TESTS_PROTO_PLAIN_H_
#define ATTND_TESTS_PROTO_PLAIN_H_

// Codec messages against plain protobuf ones: what every codec test needs.

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "proto/wire/codec.h"

namespace attnd::wire::testing {

using google::protobuf::Message;

// What attn.v1 does not use yet: every type of field, alone, in oneofs and
// repeated, packed and not, and a Tensor below the top.
const Message& EveryType();

// An empty message of each type that crosses the wire, and EveryType. Inputs in
// corpus/ name types by their places here: what is new goes to the end.
std::vector<const Message*> AllTypes();

// Sets a random half of the fields at every depth, and a random member of each
// oneof or none, to random values, extremes among them.
void FillRandom(std::mt19937_64& random, Message& message);

// Takes the data out of `plain`'s top-level Tensors and Chunks, into views of
// `storage`. A Chunk's empty data is none: plain protobuf cannot tell the two
// apart, while Decode has an entry for an empty one that was sent.
struct Split {
  std::unique_ptr<Message> header;
  std::vector<std::string> storage;
  std::vector<TensorData> data;
};
Split SplitData(const Message& plain);

// The inverse, and of what Decode took out.
std::unique_ptr<Message> JoinData(const Message& header,
                                  absl::Span<const TensorData> data);

std::string Concat(absl::Span<const Piece> pieces);

// `bytes` cut into random fragments, empty ones among them.
std::vector<absl::string_view> Cut(std::mt19937_64& random,
                                   absl::string_view bytes);

// Decodes `bytes` as a message of `type`'s type in every way and compares with
// what generated code reads. Fails (a Status that says how) when the codec
// accepts what generated code refuses, or reads it otherwise; when fragments
// change the outcome; when encoding again does. `accepted`: by kRefuse.
absl::Status CheckAgainstGenerated(const Message& type, absl::string_view bytes,
                                   std::mt19937_64& random,
                                   bool* accepted = nullptr);

}  // namespace attnd::wire::testing

#endif  // ATTND_TESTS_PROTO_PLAIN_H_
