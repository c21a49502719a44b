#ifndef ATTND_PROTO_WIRE_SCHEMA_H_
#define ATTND_PROTO_WIRE_SCHEMA_H_

// What a scan has to know of the messages that it meets. Descriptors say the
// same, but from all over the memory, by way of tables and locks: asking them
// takes longer than the generated parser takes for the whole of a small
// message.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "google/protobuf/descriptor.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire {

// The number of the data of Tensor and of Chunk.
inline constexpr int kDataField = 15;
// Whether messages of that type are a Tensor or a Chunk.
bool CarriesData(const google::protobuf::Descriptor* type);

class MessageRules;

// A field of a message.
struct FieldRules {
  // Whether it is an enum's, and has that value.
  bool HasValue(int number) const {
    if (number >= 0 && number < 64) return values >> number & 1;
    return field->enum_type()->FindValueByNumber(number) != nullptr;
  }

  const google::protobuf::FieldDescriptor* field = nullptr;  // null: no field
  const MessageRules* message = nullptr;  // its type's, where it is a message
  uint64_t values = 0;                    // an enum's below 64, a bit each
  int seen = 0;                           // in Seen, if it is not repeated
  WireType type = WireType::kVarint;      // of an element, unless packed
  bool repeated = false;
  bool packable = false;  // a repeated scalar
  bool enumeration = false;
  bool text = false;
  bool data = false;  // the data of a Tensor or Chunk
};

class MessageRules {
 public:
  const google::protobuf::Descriptor& type() const { return *type_; }
  // Null: the type has no such field.
  const FieldRules* Find(int number) const {
    if (number < 0 || number >= static_cast<int>(fields_.size())) {
      return FindFar(number);
    }
    const FieldRules& rules = fields_[number];
    return rules.field == nullptr ? nullptr : &rules;
  }
  // How many different FieldRules::seen there are.
  int seen() const { return seen_; }

 private:
  friend class Schema;
  const FieldRules* FindFar(int number) const;

  const google::protobuf::Descriptor* type_ = nullptr;
  std::vector<FieldRules> fields_;  // by number
  std::vector<FieldRules> far_;     // those of numbers that are too large
  int seen_ = 0;
};

// The rules of a type, and of all those within it.
class Schema {
 public:
  explicit Schema(const google::protobuf::Descriptor& type) : top_(Add(type)) {}
  Schema(const Schema&) = delete;
  Schema& operator=(const Schema&) = delete;

  // Of types that are part of the program a schema is made once, and kept.
  static std::shared_ptr<const Schema> Of(
      const google::protobuf::Descriptor& type);

  const MessageRules& top() const { return top_; }

 private:
  const MessageRules& Add(const google::protobuf::Descriptor& type);
  FieldRules RulesOf(const google::protobuf::FieldDescriptor& field);

  absl::flat_hash_map<const google::protobuf::Descriptor*,
                      std::unique_ptr<MessageRules>>
      messages_;
  const MessageRules& top_;
};

// Which singular fields and oneofs of one message have been seen.
class Seen {
 public:
  explicit Seen(const MessageRules& rules) : bits_(rules.seen() / 64 + 1) {}

  // False when `field`, or another of its oneof, was here before.
  bool Add(const FieldRules& field) {
    uint64_t& bits = bits_[field.seen / 64];
    const uint64_t bit = uint64_t{1} << (field.seen % 64);
    return (std::exchange(bits, bits | bit) & bit) == 0;
  }

 private:
  absl::InlinedVector<uint64_t, 1> bits_;
};

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_SCHEMA_H_
