#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "tests/proto/plain.h"

namespace attnd::wire::testing {
namespace {

namespace v1 = ::attn::v1;

void AddField(google::protobuf::DescriptorProto& message,
              google::protobuf::FieldDescriptorProto::Type type, bool repeated,
              int oneof = -1) {
  auto& field = *message.add_field();
  // Past 15, tags take two bytes; past 63, Seen takes two words.
  field.set_number(3 * message.field_size());
  field.set_name(absl::StrCat("f", field.number()));
  field.set_type(type);
  field.set_label(repeated ? field.LABEL_REPEATED : field.LABEL_OPTIONAL);
  if (type == field.TYPE_MESSAGE) field.set_type_name(".attn.v1.Tensor");
  if (type == field.TYPE_ENUM) field.set_type_name(".attn.v1.DataType");
  if (oneof >= 0) field.set_oneof_index(oneof);
  if (repeated && field.number() % 2 && type != field.TYPE_MESSAGE &&
      type != field.TYPE_STRING && type != field.TYPE_BYTES) {
    field.mutable_options()->set_packed(false);
  }
}

}  // namespace

const Message& EveryType() {
  using google::protobuf::FieldDescriptorProto;
  static const Message* const kType = [] {
    v1::Tensor::descriptor();
    google::protobuf::FileDescriptorProto file;
    file.set_name("every_type.proto");
    file.set_syntax("proto3");
    file.add_dependency(v1::Tensor::descriptor()->file()->name());
    auto& message = *file.add_message_type();
    message.set_name("EveryType");
    message.add_oneof_decl()->set_name("first");
    message.add_oneof_decl()->set_name("second");
    // A Tensor below the top.
    auto& inner = *message.add_nested_type();
    inner.set_name("Inner");
    AddField(inner, FieldDescriptorProto::TYPE_MESSAGE, false);
    AddField(message, FieldDescriptorProto::TYPE_MESSAGE, false);
    message.mutable_field(0)->set_type_name(".EveryType.Inner");
    // A oneof's fields stand together; -1 is none.
    for (int oneof : {-1, 0, 1}) {
      for (int i = 1; i <= FieldDescriptorProto::Type_MAX; ++i) {
        const auto type = static_cast<FieldDescriptorProto::Type>(i);
        if (type == FieldDescriptorProto::TYPE_GROUP) continue;
        AddField(message, type, false, oneof);
        if (oneof >= 0) continue;
        AddField(message, type, false);
        AddField(message, type, true);
        AddField(message, type, true);
      }
    }
    static google::protobuf::DescriptorPool pool(
        google::protobuf::DescriptorPool::generated_pool());
    static google::protobuf::DynamicMessageFactory factory(&pool);
    factory.SetDelegateToGeneratedFactory(true);
    return factory.GetPrototype(pool.BuildFile(file)->message_type(0));
  }();
  return *kType;
}

}  // namespace attnd::wire::testing
