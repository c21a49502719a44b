#ifndef ATTND_TESTS_PROTO_ROUTES_H_
#define ATTND_TESTS_PROTO_ROUTES_H_

// Fields at any depth: which there are, and messages put together field by
// field as no generated code would.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

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

// The paths of all fields at every depth, but for messages that have fields of
// their own: these are used as theirs are.
std::set<std::string> FieldPaths(const google::protobuf::Descriptor& type);

// `base` with the field at `path` as `text`, of the text format, says, which
// must set that alone. In a repeated message on the way it is the first's.
std::unique_ptr<google::protobuf::Message> WithField(
    const google::protobuf::Message& base, const std::string& path,
    const std::string& text);

// The numbers up to 40 that the message at the end of `route`, from a `top` on,
// lacks or reserves.
std::vector<int> Undeclared(const google::protobuf::Descriptor& top,
                            const Route& route);
// Sets field `number` of that message; the path that should name it.
std::string SetUndeclared(const Route& route, int number,
                          google::protobuf::Message& message);

}  // namespace attnd::wire::testing

#endif  // ATTND_TESTS_PROTO_ROUTES_H_
