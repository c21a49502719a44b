#include "tests/proto/plain.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/unknown_field_set.h"

namespace attnd::wire::testing {
namespace {

namespace v1 = ::attn::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

uint64_t RandomBits(std::mt19937_64& random) {
  switch (random() % 4) {
    case 0:
      return random() % 200;
    case 1:
      return random() >> (random() % 64);
    case 2:
      return ~uint64_t{0} - random() % 3;
    default:
      return random();
  }
}

std::string RandomText(std::mt19937_64& random, bool utf8) {
  std::string text(random() % 8 == 0 ? random() % 300 : random() % 20, '\0');
  for (char& c : text) {
    c = static_cast<char>(utf8 ? ' ' + random() % 95 : random());
  }
  if (utf8 && random() % 2) text += "\u00e9\u20ac\U0001f600";
  return text;
}

template <typename T>
T FromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Sets, or adds to, one field.
void FillField(std::mt19937_64& random, const FieldDescriptor* field,
               Message& m) {
  const Reflection& r = *m.GetReflection();
  const uint64_t bits = RandomBits(random);
  const bool add = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return add ? r.AddInt32(&m, field, bits) : r.SetInt32(&m, field, bits);
    case FieldDescriptor::CPPTYPE_INT64:
      return add ? r.AddInt64(&m, field, bits) : r.SetInt64(&m, field, bits);
    case FieldDescriptor::CPPTYPE_UINT32:
      return add ? r.AddUInt32(&m, field, bits) : r.SetUInt32(&m, field, bits);
    case FieldDescriptor::CPPTYPE_UINT64:
      return add ? r.AddUInt64(&m, field, bits) : r.SetUInt64(&m, field, bits);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const auto x = FromBits<double>(bits);
      return add ? r.AddDouble(&m, field, x) : r.SetDouble(&m, field, x);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const auto x = FromBits<float>(bits);
      return add ? r.AddFloat(&m, field, x) : r.SetFloat(&m, field, x);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return add ? r.AddBool(&m, field, bits & 1)
                 : r.SetBool(&m, field, bits & 1);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* type = field->enum_type();
      const int x = type->value(bits % type->value_count())->number();
      return add ? r.AddEnumValue(&m, field, x) : r.SetEnumValue(&m, field, x);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string x =
          RandomText(random, field->type() == FieldDescriptor::TYPE_STRING);
      return add ? r.AddString(&m, field, x) : r.SetString(&m, field, x);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FillRandom(random, add ? *r.AddMessage(&m, field)
                                    : *r.MutableMessage(&m, field));
  }
}

bool IsTensor(const FieldDescriptor& field) {
  return !field.is_repeated() &&
         field.message_type() == v1::Tensor::descriptor();
}

// Whether `message` holds a field or, at any depth, an enum value that its
// schema lacks.
bool HasUnknown(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  if (!reflection.GetUnknownFields(message).empty()) return true;
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count =
        field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const Message& inner =
            field->is_repeated()
                ? reflection.GetRepeatedMessage(message, field, i)
                : reflection.GetMessage(message, field);
        if (HasUnknown(inner)) return true;
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        const int value =
            field->is_repeated()
                ? reflection.GetRepeatedEnumValue(message, field, i)
                : reflection.GetEnumValue(message, field);
        if (field->enum_type()->FindValueByNumber(value) == nullptr) {
          return true;
        }
      }
    }
  }
  return false;
}

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

struct Decoded {
  absl::Status status;
  std::unique_ptr<Message> header;
  std::vector<TensorData> data;
  std::string joined;  // as plain protobuf serialises it
};

Decoded DecodeAs(const Message& type,
                 absl::Span<const absl::string_view> fragments,
                 UnknownFields unknown) {
  Decoded d;
  d.header.reset(type.New());
  d.status = Decode(fragments, unknown, *d.header, d.data);
  if (d.status.ok())
    d.joined = JoinData(*d.header, d.data)->SerializeAsString();
  return d;
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

std::vector<const Message*> AllTypes() {
  return {&v1::ForwardRequest::default_instance(),
          &v1::BackwardRequest::default_instance(),
          &v1::ForwardResponse::default_instance(),
          &v1::BackwardResponse::default_instance(),
          &v1::GetServerInfoRequest::default_instance(),
          &v1::GetServerInfoResponse::default_instance(),
          &EveryType()};
}

void FillRandom(std::mt19937_64& random, Message& message) {
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    if (random() % 2) continue;
    int count = type->field(i)->is_repeated() ? random() % 5 : 1;
    while (count-- > 0) FillField(random, type->field(i), message);
  }
}

Split SplitData(const Message& plain) {
  Split split;
  split.header.reset(plain.New());
  split.header->CopyFrom(plain);
  const auto* type = plain.GetDescriptor();
  split.storage.reserve(type->field_count());
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (!IsTensor(*field) || !plain.GetReflection()->HasField(plain, field)) {
      continue;
    }
    auto& tensor =
        static_cast<v1::Tensor&>(*split.header->GetReflection()->MutableMessage(
            split.header.get(), field));
    if (!tensor.has_data()) continue;
    split.storage.push_back(tensor.data());
    split.data.push_back({field->number(), {split.storage.back()}});
    tensor.clear_storage();
  }
  return split;
}

std::unique_ptr<Message> JoinData(const Message& header,
                                  absl::Span<const TensorData> data) {
  std::unique_ptr<Message> plain(header.New());
  plain->CopyFrom(header);
  for (const TensorData& entry : data) {
    const auto* field = header.GetDescriptor()->FindFieldByNumber(entry.field);
    auto& tensor = static_cast<v1::Tensor&>(
        *plain->GetReflection()->MutableMessage(plain.get(), field));
    std::string& bytes = *tensor.mutable_data();
    for (absl::string_view piece : entry.pieces) {
      bytes.append(piece.data(), piece.size());
    }
  }
  return plain;
}

std::string Concat(absl::Span<const Piece> pieces) {
  std::string bytes;
  for (const Piece& piece : pieces) {
    absl::StrAppend(&bytes, piece.owned, piece.borrowed);
  }
  return bytes;
}

std::vector<absl::string_view> Cut(std::mt19937_64& random,
                                   absl::string_view bytes) {
  std::vector<absl::string_view> fragments;
  const size_t most = random() % 2 ? 3 : bytes.size() + 1;
  while (!bytes.empty()) {
    const size_t n = std::min<size_t>(random() % (most + 1), bytes.size());
    fragments.push_back(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
  return fragments;
}

absl::Status CheckAgainstGenerated(const Message& type, absl::string_view bytes,
                                   std::mt19937_64& random, bool* accepted) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InternalError(absl::StrCat(what, ": ", type.GetTypeName(), " ",
                                            absl::BytesToHexString(bytes)));
  };
  const auto whole = absl::MakeConstSpan(&bytes, 1);
  const Decoded strict = DecodeAs(type, whole, UnknownFields::kRefuse);
  const Decoded lenient = DecodeAs(type, whole, UnknownFields::kIgnore);
  if (accepted) *accepted = strict.status.ok();
  for (const Decoded* d : {&strict, &lenient}) {
    const bool is_strict = d == &strict;
    const Decoded again =
        DecodeAs(type, Cut(random, bytes),
                 is_strict ? UnknownFields::kRefuse : UnknownFields::kIgnore);
    if (again.status != d->status || again.joined != d->joined) {
      return wrong("fragments change the outcome");
    }
    if (!d->status.ok()) {
      if (d->header->ByteSizeLong() != 0 || !d->data.empty()) {
        return wrong("refused but not empty");
      }
      continue;
    }
    std::unique_ptr<Message> plain(type.New());
    if (!plain->ParseFromArray(bytes.data(), bytes.size())) {
      return wrong("accepted, but generated code refuses it");
    }
    if (is_strict && HasUnknown(*plain)) return wrong("unknown, but accepted");
    plain->DiscardUnknownFields();
    if (plain->SerializeAsString() != d->joined) return wrong("read otherwise");

    const auto pieces = Encode(*d->header, d->data);
    if (!pieces.ok()) return pieces.status();
    if (!plain->ParseFromString(Concat(*pieces)) ||
        plain->SerializeAsString() != d->joined) {
      return wrong("encoding again changes it");
    }
  }
  if (strict.status.ok() && lenient.joined != strict.joined) {
    return wrong("ignoring unknown fields changes a message without any");
  }
  return absl::OkStatus();
}

}  // namespace attnd::wire::testing
