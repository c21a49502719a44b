#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/wire/codec.h"
#include "proto/wire/place.h"
#include "proto/wire/status.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// One pass over a message: checks it against its descriptor and copies all but
// the tensors' data to header bytes that the generated parser then reads.
// Recursion is bounded by the schema, which is not recursive.
class Scan {
 public:
  Scan(Reader& reader, UnknownFields unknown, std::vector<TensorData>& data)
      : reader_(reader), unknown_(unknown), data_(data) {
    header_.reserve(256);
  }

  // Everything up to the reader's limit is one `type`.
  absl::Status Message(const Descriptor& type, const Place* place);

  const std::string& header() const { return header_; }

 private:
  absl::Status Field(const Place& place, WireType type);
  absl::Status Varint(const Place& place);
  absl::Status Fixed(const Place& place, int64_t bytes);
  absl::Status Bytes(const Place& place);
  absl::Status SubMessage(const Place& place, int64_t length);
  absl::Status Packed(const Place& place, int64_t length);
  absl::Status TakeData(const Place& place);
  absl::Status CheckEnum(const Place& place, uint64_t value) const;
  absl::Status Unknown(const Descriptor& type, const Place* place, Tag tag);

  // Whether the header may grow by `bytes`.
  bool Fits(int64_t bytes) const {
    return bytes <= kMaxHeaderBytes - static_cast<int64_t>(header_.size());
  }
  static absl::Status TooLarge(const Place& place) {
    return ErrorAt(&place,
                   absl::StrCat("the message has over ", kMaxHeaderBytes,
                                " bytes beside its tensors' data"));
  }

  Reader& reader_;
  const UnknownFields unknown_;
  std::vector<TensorData>& data_;
  std::string header_;
};

absl::Status Scan::Message(const Descriptor& type, const Place* place) {
  Seen seen(type);
  while (reader_.left() > 0) {
    Tag tag;
    if (!reader_.ReadTag(tag)) {
      return ErrorAt(place, "truncated or malformed field tag");
    }
    const FieldDescriptor* field = type.FindFieldByNumber(tag.number);
    if (field == nullptr) {
      if (absl::Status status = Unknown(type, place, tag); !status.ok()) {
        return status;
      }
      continue;
    }
    const Place here{place, field};
    if (!field->is_repeated() && !seen.Add(*field)) {
      return ErrorAt(&here, field->real_containing_oneof()
                                ? "more than one member of its oneof"
                                : "given more than once");
    }
    if (absl::Status status = Field(here, tag.type); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Scan::Unknown(const Descriptor& type, const Place* place,
                           Tag tag) {
  if (unknown_ == UnknownFields::kRefuse) {
    return UnknownFieldError(PathOf(place), type.full_name(), tag.number);
  }
  int64_t length = 0;
  uint64_t ignored;
  bool ok = true;
  switch (tag.type) {
    case WireType::kVarint:
      ok = reader_.ReadVarint(ignored);
      break;
    case WireType::kFixed64:
      length = 8;
      break;
    case WireType::kFixed32:
      length = 4;
      break;
    case WireType::kBytes:
      ok = reader_.ReadLength(length);
      break;
    default:
      return ErrorAt(place, absl::StrCat("field ", tag.number, " is a group"));
  }
  if (!ok || length > reader_.left()) {
    return ErrorAt(place, absl::StrCat("field ", tag.number,
                                       " is truncated or malformed"));
  }
  reader_.Skip(length);
  return absl::OkStatus();
}

absl::Status Scan::Field(const Place& place, WireType type) {
  const WireType expected = WireTypeOf(*place.field);
  // Either form of a repeated scalar is accepted, whichever is declared.
  const bool packed = type == WireType::kBytes && place.field->is_packable();
  if ((type != expected && !packed) || type == WireType::kStartGroup) {
    return ErrorAt(&place,
                   absl::StrCat("wire type ", static_cast<int>(type), " where ",
                                static_cast<int>(expected), " belongs"));
  }
  if (IsTensorData(place)) return TakeData(place);
  if (!Fits(20)) return TooLarge(place);  // the longest tag and varint
  AppendTag({place.field->number(), type}, header_);
  switch (type) {
    case WireType::kVarint:
      return Varint(place);
    case WireType::kFixed32:
      return Fixed(place, 4);
    case WireType::kFixed64:
      return Fixed(place, 8);
    default:
      return Bytes(place);
  }
}

absl::Status Scan::Varint(const Place& place) {
  uint64_t value;
  if (!reader_.ReadVarint(value)) {
    return ErrorAt(&place, "truncated or malformed varint");
  }
  AppendVarint(value, header_);
  return CheckEnum(place, value);
}

absl::Status Scan::CheckEnum(const Place& place, uint64_t value) const {
  if (unknown_ != UnknownFields::kRefuse ||
      place.field->type() != FieldDescriptor::TYPE_ENUM) {
    return absl::OkStatus();
  }
  const auto* type = place.field->enum_type();
  const int number = static_cast<int>(value);  // as generated code reads it
  if (type->FindValueByNumber(number) != nullptr) return absl::OkStatus();
  return ErrorAt(
      &place, absl::StrCat(number, " is not a value of ", type->full_name()));
}

absl::Status Scan::Fixed(const Place& place, int64_t bytes) {
  if (bytes > reader_.left()) return ErrorAt(&place, "truncated");
  reader_.CopyTo(header_, bytes);
  return absl::OkStatus();
}

absl::Status Scan::Bytes(const Place& place) {
  int64_t length;
  if (!reader_.ReadLength(length)) {
    return ErrorAt(&place, "truncated, or its length is malformed");
  }
  const FieldDescriptor& field = *place.field;
  if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
    return SubMessage(place, length);
  }
  if (!Fits(length + 10)) return TooLarge(place);
  AppendVarint(length, header_);
  const size_t start = header_.size();
  if (field.is_packable()) return Packed(place, length);
  reader_.CopyTo(header_, length);
  if (field.type() == FieldDescriptor::TYPE_STRING &&
      !IsUtf8(absl::string_view(header_).substr(start))) {
    return ErrorAt(&place, "not UTF-8");
  }
  return absl::OkStatus();
}

absl::Status Scan::Packed(const Place& place, int64_t length) {
  const WireType element = WireTypeOf(*place.field);
  if (element != WireType::kVarint) {
    if (length % (element == WireType::kFixed32 ? 4 : 8) != 0) {
      return ErrorAt(&place, "packed elements cut short");
    }
    reader_.CopyTo(header_, length);
    return absl::OkStatus();
  }
  // Read where they are, then re-read from the copy by the generated parser:
  // a varint that crosses the field's end must be found here.
  const size_t start = header_.size();
  reader_.CopyTo(header_, length);
  const absl::string_view copy = absl::string_view(header_).substr(start);
  Reader elements(absl::MakeConstSpan(&copy, 1));
  while (elements.left() > 0) {
    uint64_t value;
    if (!elements.ReadVarint(value)) {
      return ErrorAt(&place, "truncated or malformed varint");
    }
    if (absl::Status status = CheckEnum(place, value); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Scan::TakeData(const Place& place) {
  int64_t length;
  if (!reader_.ReadLength(length)) {
    return ErrorAt(&place, "truncated, or its length is malformed");
  }
  TensorData& data = data_.emplace_back();
  // What IsTensorData says of it. NOLINTNEXTLINE(*-core.NullDereference)
  data.field = place.outer->field->number();
  reader_.ViewInto(data.pieces, length);
  return absl::OkStatus();
}

absl::Status Scan::SubMessage(const Place& place, int64_t length) {
  // Without tensor data the copy is shorter than `length`; five bytes hold
  // any length, padded, which parsers accept.
  constexpr int kLengthBytes = 5;
  const size_t length_at = header_.size();
  header_.append(kLengthBytes, '\0');
  const int64_t outer = reader_.PushLimit(length);
  if (absl::Status status = Message(*place.field->message_type(), &place);
      !status.ok()) {
    return status;
  }
  reader_.PopLimit(outer);
  const size_t copied = header_.size() - length_at - kLengthBytes;
  for (int i = 0; i < kLengthBytes; ++i) {
    header_[length_at + i] = static_cast<char>(
        (copied >> (7 * i) & 0x7F) | (i + 1 < kLengthBytes ? 0x80 : 0));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Decode(absl::Span<const absl::string_view> fragments,
                    UnknownFields unknown, google::protobuf::Message& header,
                    std::vector<TensorData>& data) {
  header.Clear();
  data.clear();
  Reader reader(fragments);
  if (reader.left() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("message: ", reader.left(),
                                                   " bytes, over the limit of ",
                                                   kMaxMessageBytes));
  }
  Scan scan(reader, unknown, data);
  absl::Status status = scan.Message(*header.GetDescriptor(), nullptr);
  // The scan is stricter than the parser; a difference would be its bug.
  if (status.ok() && !header.ParseFromString(scan.header())) {
    status = absl::InvalidArgumentError("message: malformed");
  }
  if (!status.ok()) {
    header.Clear();
    data.clear();
  }
  return status;
}

}  // namespace attnd::wire
