#include "tests/proto/routes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

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

bool HasFields(const FieldDescriptor& field) {
  return field.message_type() != nullptr &&
         field.message_type()->field_count() > 0;
}

// The first message of a field that is set.
const Message& First(const Message& in, const FieldDescriptor* field) {
  return field->is_repeated()
             ? in.GetReflection()->GetRepeatedMessage(in, field, 0)
             : in.GetReflection()->GetMessage(in, field);
}
Message& MutableFirst(Message& in, const FieldDescriptor* field) {
  const Reflection& reflection = *in.GetReflection();
  if (!field->is_repeated()) return *reflection.MutableMessage(&in, field);
  if (reflection.FieldSize(in, field) == 0) {
    return *reflection.AddMessage(&in, field);
  }
  return *reflection.MutableRepeatedMessage(&in, field, 0);
}

// The path of the one field that `message` sets; of several, all.
std::string SetPath(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::vector<std::string> paths;
  for (const FieldDescriptor* field : fields) {
    paths.push_back(
        HasFields(*field)
            ? absl::StrCat(field->name(), ".", SetPath(First(message, field)))
            : field->name());
  }
  return absl::StrJoin(paths, " and ");
}

// Takes the field at `path` from `from`, which sets nothing else.
void Replace(absl::Span<const std::string> path, const Message& from,
             Message& to) {
  const auto* field = to.GetDescriptor()->FindFieldByName(path[0]);
  if (path.size() > 1) {
    return Replace(path.subspan(1), First(from, field),
                   MutableFirst(to, field));
  }
  to.GetReflection()->ClearField(&to, field);
  to.MergeFrom(from);
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

std::set<std::string> FieldPaths(const Descriptor& type) {
  std::set<std::string> paths;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!HasFields(field)) {
      paths.insert(field.name());
      continue;
    }
    for (const std::string& path : FieldPaths(*field.message_type())) {
      paths.insert(absl::StrCat(field.name(), ".", path));
    }
  }
  return paths;
}

std::unique_ptr<Message> WithField(const Message& base, const std::string& path,
                                   const std::string& text) {
  std::unique_ptr<Message> message(base.New()), change(base.New());
  message->CopyFrom(base);
  const bool read =
      google::protobuf::TextFormat::ParseFromString(text, change.get());
  EXPECT_TRUE(read) << text;
  EXPECT_EQ(SetPath(*change), path) << text;
  if (!read || SetPath(*change) != path) return message;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  Replace(names, *change, *message);
  return message;
}

std::vector<int> Undeclared(const Descriptor& top, const Route& route) {
  constexpr int kNumbers = 40;
  const Descriptor& type = route.empty() ? top : *route.back()->message_type();
  std::vector<int> numbers;
  for (int number = 1; number <= kNumbers; ++number) {
    if (type.FindFieldByNumber(number) == nullptr) numbers.push_back(number);
  }
  return numbers;
}

std::string SetUndeclared(const Route& route, int number, Message& message) {
  Message* at = &message;
  for (const FieldDescriptor* field : route) at = &MutableFirst(*at, field);
  at->GetReflection()->MutableUnknownFields(at)->AddVarint(number, 1);
  const std::string path = PathOf(route);
  return absl::StrCat(path, path.empty() ? "" : ".", number);
}

}  // namespace attnd::wire::testing
