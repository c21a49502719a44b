#include "proto/wire/place.h"

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "proto/wire/status.h"

namespace attnd::wire {

namespace v1 = ::attn::v1;
using google::protobuf::FieldDescriptor;

std::string PathOf(const Place* place) {
  if (place == nullptr) return "";
  std::string path = PathOf(place->outer);
  if (!path.empty()) path += '.';
  return path + place->field->name();
}

absl::Status ErrorAt(const Place* place, absl::string_view description) {
  if (place == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("message: ", description));
  }
  return FieldError(PathOf(place), description);
}

bool CarriesData(const google::protobuf::Descriptor* type) {
  static_assert(kDataField == v1::Tensor::kDataFieldNumber &&
                kDataField == v1::Chunk::kDataFieldNumber);
  return type == v1::Tensor::descriptor() || type == v1::Chunk::descriptor();
}

bool IsTensorData(const Place& place) {
  return place.outer != nullptr && place.outer->outer == nullptr &&
         !place.outer->field->is_repeated() &&
         place.field->number() == kDataField &&
         CarriesData(place.field->containing_type());
}

WireType WireTypeOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
      return WireType::kFixed64;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
      return WireType::kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return WireType::kBytes;
    case FieldDescriptor::TYPE_GROUP:
      return WireType::kStartGroup;
    default:
      return WireType::kVarint;
  }
}

}  // namespace attnd::wire
