#ifndef ATTND_PROTO_WIRE_PLACE_H_
#define ATTND_PROTO_WIRE_PLACE_H_

// Where in a message a scan is, and what its schema has to say there.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/wire/schema.h"

namespace attnd::wire {

// A field, and what it is in; null at the top. Text only for errors.
struct Place {
  const Place* outer;
  const FieldRules* rules;
};

// "q.shape"; empty at the top.
std::string PathOf(const Place* place);
// INVALID_ARGUMENT that names the place.
absl::Status ErrorAt(const Place* place, absl::string_view description);
// Whether it is the data of a top-level Tensor or Chunk, one that TensorData
// can name.
inline bool IsTensorData(const Place& place) {
  return place.rules->data && place.outer != nullptr &&
         place.outer->outer == nullptr && !place.outer->rules->repeated;
}

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_PLACE_H_
