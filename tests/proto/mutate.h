#ifndef ATTND_TESTS_PROTO_MUTATE_H_
#define ATTND_TESTS_PROTO_MUTATE_H_

#include <random>
#include <string>

#include "absl/strings/string_view.h"

namespace attnd::wire::testing {

// `bytes` with a few changes, most of which know protobuf's structure: fields
// dropped, repeated, moved, renumbered, nested, given another wire type or
// value, taken from `other`, at any depth; lengths stay right or lie. Some just
// flip, cut or insert bytes.
std::string Mutate(std::mt19937_64& random, absl::string_view bytes,
                   absl::string_view other);

}  // namespace attnd::wire::testing

#endif  // ATTND_TESTS_PROTO_MUTATE_H_
