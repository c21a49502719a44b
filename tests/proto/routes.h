#ifndef ATTND_TESTS_PROTO_ROUTES_H_
#define ATTND_TESTS_PROTO_ROUTES_H_

// Messages put together field by field, at any depth: what no generated code
// would write.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace attnd::wire::testing {

// One field, its tag included.
std::string Bytes(int number, absl::string_view body);
std::string Varint(int number, uint64_t value);

// The fields that lead from a message to one inside it; none: itself.
using Route = std::vector<const google::protobuf::FieldDescriptor*>;

// The routes to all messages that one of `type` can hold, itself included.
// Precondition: the schema is not recursive.
std::vector<Route> Routes(const google::protobuf::Descriptor& type);

// "header.forward.q"; empty for none.
std::string PathOf(const Route& route);

// A message in which the one at the end of `route` is `bytes`.
std::string Wrap(const Route& route, std::string bytes);

}  // namespace attnd::wire::testing

#endif  // ATTND_TESTS_PROTO_ROUTES_H_
