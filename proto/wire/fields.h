#ifndef ATTND_PROTO_WIRE_FIELDS_H_
#define ATTND_PROTO_WIRE_FIELDS_H_

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace attnd::wire {

// The singular message fields of one message, which it does not own, by their
// numbers, e.g. ForwardRequest::kQFieldNumber: what has a table of numbers can
// walk requests and responses of either kind in one loop, and names in errors
// are the schema's. Looks up the message's type once. Preconditions: the
// message has a field of that number, and its type is Part.
class Fields {
 public:
  explicit Fields(google::protobuf::Message& message)
      : message_(message),
        type_(*message.GetDescriptor()),
        reflection_(*message.GetReflection()) {}

  const std::string& Name(int number) const { return Field(number)->name(); }

  bool Has(int number) const {
    return reflection_.HasField(message_, Field(number));
  }

  // Part's default where the field is not set.
  template <typename Part>
  const Part& Get(int number) const {
    return static_cast<const Part&>(
        reflection_.GetMessage(message_, Field(number)));
  }

  // Sets the field if it is not.
  template <typename Part>
  Part& Mutable(int number) {
    return static_cast<Part&>(
        *reflection_.MutableMessage(&message_, Field(number)));
  }

 private:
  const google::protobuf::FieldDescriptor* Field(int number) const {
    return type_.FindFieldByNumber(number);
  }

  google::protobuf::Message& message_;
  const google::protobuf::Descriptor& type_;
  const google::protobuf::Reflection& reflection_;
};

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_FIELDS_H_
