#include "proto/wire/schema.h"

#include <algorithm>

#include "attn/v1/attention.pb.h"
#include "base/mutex.h"

namespace attnd::wire {
namespace {

namespace v1 = ::attn::v1;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Fields of larger numbers are looked for one by one.
constexpr int kNearFields = 128;

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

// Those that a program has of generated code. They live as long as it does, and
// so their addresses can stand for them; others can follow at the same one.
class Kept {
 public:
  std::shared_ptr<const Schema> Of(const Descriptor& type) {
    MutexLock lock(mutex_);
    std::shared_ptr<const Schema>& schema = schemas_[&type];
    if (schema == nullptr) schema = std::make_shared<const Schema>(type);
    return schema;
  }

 private:
  Mutex mutex_;
  absl::flat_hash_map<const Descriptor*, std::shared_ptr<const Schema>> schemas_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace

bool CarriesData(const Descriptor* type) {
  static_assert(kDataField == v1::Tensor::kDataFieldNumber &&
                kDataField == v1::Chunk::kDataFieldNumber);
  return type == v1::Tensor::descriptor() || type == v1::Chunk::descriptor();
}

const FieldRules* MessageRules::FindFar(int number) const {
  const auto at =
      std::find_if(far_.begin(), far_.end(), [number](const FieldRules& rules) {
        return rules.field->number() == number;
      });
  return at == far_.end() ? nullptr : &*at;
}

std::shared_ptr<const Schema> Schema::Of(const Descriptor& type) {
  static Kept* const kept = new Kept;
  const auto* generated = google::protobuf::DescriptorPool::generated_pool();
  if (type.file()->pool() == generated) return kept->Of(type);
  return std::make_shared<const Schema>(type);
}

const MessageRules& Schema::Add(const Descriptor& type) {
  std::unique_ptr<MessageRules>& place = messages_[&type];
  if (place != nullptr) return *place;
  place = std::make_unique<MessageRules>();
  MessageRules& rules = *place;  // `place` moves as others are added
  rules.type_ = &type;
  rules.seen_ = type.field_count() + type.real_oneof_decl_count();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.number() >= kNearFields) {
      rules.far_.push_back(RulesOf(field));
      continue;
    }
    if (field.number() >= std::ssize(rules.fields_)) {
      rules.fields_.resize(field.number() + 1);
    }
    rules.fields_[field.number()] = RulesOf(field);
  }
  return rules;
}

FieldRules Schema::RulesOf(const FieldDescriptor& field) {
  const Descriptor& type = *field.containing_type();
  FieldRules rules;
  rules.field = &field;
  if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
    rules.message = &Add(*field.message_type());
  }
  const auto* oneof = field.real_containing_oneof();
  rules.seen =
      oneof == nullptr ? field.index() : type.field_count() + oneof->index();
  rules.type = WireTypeOf(field);
  rules.repeated = field.is_repeated();
  rules.packable = field.is_packable();
  rules.enumeration = field.type() == FieldDescriptor::TYPE_ENUM;
  rules.text = field.type() == FieldDescriptor::TYPE_STRING;
  rules.data = field.number() == kDataField && CarriesData(&type);
  for (int i = 0; rules.enumeration && i < field.enum_type()->value_count();
       ++i) {
    const int number = field.enum_type()->value(i)->number();
    if (number >= 0 && number < 64) rules.values |= uint64_t{1} << number;
  }
  return rules;
}

}  // namespace attnd::wire
