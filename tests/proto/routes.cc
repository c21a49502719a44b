#include "tests/proto/routes.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

void AddRoutes(const Descriptor& type, Route& at, std::vector<Route>& routes) {
  routes.push_back(at);
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->message_type() == nullptr) continue;
    at.push_back(field);
    AddRoutes(*field->message_type(), at, routes);
    at.pop_back();
  }
}

}  // namespace

std::string Bytes(int number, absl::string_view body) {
  std::string out;
  AppendField(number, body, out);
  return out;
}

std::string Varint(int number, uint64_t value) {
  std::string out;
  AppendTag({number, WireType::kVarint}, out);
  AppendVarint(value, out);
  return out;
}

std::vector<Route> Routes(const Descriptor& type) {
  std::vector<Route> routes;
  Route at;
  AddRoutes(type, at, routes);
  return routes;
}

std::string PathOf(const Route& route) {
  return absl::StrJoin(route, ".",
                       [](std::string* out, const FieldDescriptor* field) {
                         out->append(field->name());
                       });
}

std::string Wrap(const Route& route, std::string bytes) {
  for (auto field = route.rbegin(); field != route.rend(); ++field) {
    bytes = Bytes((*field)->number(), bytes);
  }
  return bytes;
}

}  // namespace attnd::wire::testing
