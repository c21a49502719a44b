#ifndef ATTND_PROTO_WIRE_PLACE_H_
#define ATTND_PROTO_WIRE_PLACE_H_

// Where in a message a scan is, and what its schema has to say there.

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire {

// A field, and what it is in; null at the top. Text only for errors.
struct Place {
  const Place* outer;
  const google::protobuf::FieldDescriptor* field;
};

// "q.shape"; empty at the top.
std::string PathOf(const Place* place);
// INVALID_ARGUMENT that names the place.
absl::Status ErrorAt(const Place* place, absl::string_view description);
// The number of the data of Tensor and of Chunk.
inline constexpr int kDataField = 15;
// Whether messages of that type are a Tensor or a Chunk.
bool CarriesData(const google::protobuf::Descriptor* type);
// Whether it is the data of a top-level Tensor or Chunk, one that TensorData
// can name.
bool IsTensorData(const Place& place);

// How an element of `field` is sent, unless packed.
WireType WireTypeOf(const google::protobuf::FieldDescriptor& field);

// Which singular fields and oneofs of one message have been seen.
class Seen {
 public:
  explicit Seen(const google::protobuf::Descriptor& type)
      : bits_((type.field_count() + type.real_oneof_decl_count()) / 64 + 1),
        oneofs_at_(type.field_count()) {}

  // False when `field`, or another of its oneof, was here before.
  bool Add(const google::protobuf::FieldDescriptor& field) {
    const auto* oneof = field.real_containing_oneof();
    const int at = oneof ? oneofs_at_ + oneof->index() : field.index();
    const uint64_t bit = uint64_t{1} << (at % 64);
    if (bits_[at / 64] & bit) return false;
    bits_[at / 64] |= bit;
    return true;
  }

 private:
  absl::InlinedVector<uint64_t, 1> bits_;
  const int oneofs_at_;
};

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_PLACE_H_
