#include "tests/proto/plain.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "attn/v1/region.pb.h"
#include "google/protobuf/descriptor.h"
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

// Whether the codec takes the data out of such a field at the top.
bool GivesData(const FieldDescriptor& field) {
  return !field.is_repeated() &&
         (field.message_type() == v1::Tensor::descriptor() ||
          field.message_type() == v1::Chunk::descriptor());
}

// The data of a Tensor or a Chunk.
const FieldDescriptor* DataField(const Message& part) {
  return part.GetDescriptor()->FindFieldByName("data");
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

std::vector<const Message*> AllTypes() {
  return {&v1::ForwardRequest::default_instance(),
          &v1::BackwardRequest::default_instance(),
          &v1::ForwardResponse::default_instance(),
          &v1::BackwardResponse::default_instance(),
          &v1::GetServerInfoRequest::default_instance(),
          &v1::GetServerInfoResponse::default_instance(),
          &EveryType(),
          &v1::ExchangeRequest::default_instance(),
          &v1::ExchangeResponse::default_instance(),
          &v1::RegionRequest::default_instance(),
          &v1::RegionReply::default_instance()};
}

void FillRandom(std::mt19937_64& random, Message& message) {
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->real_containing_oneof() != nullptr || random() % 2) continue;
    int count = field->is_repeated() ? random() % 5 : 1;
    while (count-- > 0) FillField(random, field, message);
  }
  // Each member as often as any other, or none.
  for (int i = 0; i < type->real_oneof_decl_count(); ++i) {
    const auto* oneof = type->oneof_decl(i);
    const int member = random() % (oneof->field_count() + 1);
    if (member == oneof->field_count()) continue;
    FillField(random, oneof->field(member), message);
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
    if (!GivesData(*field) || !plain.GetReflection()->HasField(plain, field)) {
      continue;
    }
    Message& part = *split.header->GetReflection()->MutableMessage(
        split.header.get(), field);
    const Reflection& reflection = *part.GetReflection();
    const FieldDescriptor* data = DataField(part);
    // A Chunk's that is empty counts as none, as when it is sent.
    if (!reflection.HasField(part, data)) continue;
    split.storage.push_back(reflection.GetString(part, data));
    split.data.push_back({field->number(), {split.storage.back()}});
    reflection.ClearField(&part, data);
  }
  return split;
}

std::unique_ptr<Message> JoinData(const Message& header,
                                  absl::Span<const TensorData> data) {
  std::unique_ptr<Message> plain(header.New());
  plain->CopyFrom(header);
  for (const TensorData& entry : data) {
    Message& part = *plain->GetReflection()->MutableMessage(
        plain.get(), header.GetDescriptor()->FindFieldByNumber(entry.field));
    const Reflection& reflection = *part.GetReflection();
    std::string bytes = reflection.GetString(part, DataField(part));
    for (absl::string_view piece : entry.pieces) {
      bytes.append(piece.data(), piece.size());
    }
    reflection.SetString(&part, DataField(part), std::move(bytes));
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
    if (!SplitData(*d->header).data.empty()) {
      return wrong("data left in the header");
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
