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
#include "proto/wire/schema.h"
#include "proto/wire/status.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire {
namespace {

// One pass over a message: checks it against its schema and copies all but
// the tensors' data to header bytes that the generated parser then reads.
// Recursion is bounded by the schema, which is not recursive.
class Scan {
 public:
  Scan(Reader& reader, UnknownFields unknown, std::vector<TensorData>& data)
      : reader_(reader), unknown_(unknown), data_(data) {}

  // Everything up to the reader's limit is one message of that type.
  absl::Status Message(const MessageRules& rules, const Place* place);

  absl::string_view header() const {
    return absl::string_view(header_).substr(0, size_);
  }

 private:
  absl::Status Field(const Place& place, WireType type);
  absl::Status Varint(const Place& place, Tag tag);
  absl::Status Fixed(const Place& place, Tag tag, int64_t bytes);
  absl::Status Bytes(const Place& place, Tag tag);
  absl::Status SubMessage(const Place& place, Tag tag, int64_t length);
  absl::Status Packed(const Place& place, int64_t length);
  absl::Status TakeData(const Place& place);
  absl::Status CheckEnum(const Place& place, uint64_t value) const;
  absl::Status Unknown(const MessageRules& rules, const Place* place, Tag tag);

  // Whether the header may grow by `bytes`.
  bool Fits(int64_t bytes) const { return bytes <= kMaxHeaderBytes - size_; }
  // Where its next `bytes` are to be.
  char* Room(int64_t bytes) {
    const auto needed = static_cast<size_t>(size_ + bytes);
    if (needed > header_.size()) header_.resize(2 * needed);
    return header_.data() + size_;
  }
  void Append(Tag tag) {
    char* const begin = Room(10);
    size_ += WriteTag(tag, begin) - begin;
  }
  void Append(Tag tag, uint64_t value) {
    char* const begin = Room(20);
    size_ += WriteVarint(value, WriteTag(tag, begin)) - begin;
  }
  // What is next of what is read.
  void Copy(int64_t bytes) {
    reader_.CopyTo(Room(bytes), bytes);
    size_ += bytes;
  }
  static absl::Status TooLarge(const Place& place) {
    return ErrorAt(&place,
                   absl::StrCat("the message has over ", kMaxHeaderBytes,
                                " bytes beside its tensors' data"));
  }

  Reader& reader_;
  const UnknownFields unknown_;
  std::vector<TensorData>& data_;
  std::string header_ = std::string(512, '\0');  // at least size_ of it
  int64_t size_ = 0;
};

absl::Status Scan::Message(const MessageRules& rules, const Place* place) {
  Seen seen(rules);
  while (reader_.left() > 0) {
    Tag tag;
    if (!reader_.ReadTag(tag)) {
      return ErrorAt(place, "truncated or malformed field tag");
    }
    const FieldRules* field = rules.Find(tag.number);
    if (field == nullptr) {
      if (absl::Status status = Unknown(rules, place, tag); !status.ok()) {
        return status;
      }
      continue;
    }
    const Place here{place, field};
    if (!field->repeated && !seen.Add(*field)) {
      return ErrorAt(&here, field->field->real_containing_oneof()
                                ? "more than one member of its oneof"
                                : "given more than once");
    }
    if (absl::Status status = Field(here, tag.type); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Scan::Unknown(const MessageRules& rules, const Place* place,
                           Tag tag) {
  if (unknown_ == UnknownFields::kRefuse) {
    return UnknownFieldError(PathOf(place), rules.type().full_name(),
                             tag.number);
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
  const FieldRules& rules = *place.rules;
  // Either form of a repeated scalar is accepted, whichever is declared.
  const bool packed = type == WireType::kBytes && rules.packable;
  if ((type != rules.type && !packed) || type == WireType::kStartGroup) {
    return ErrorAt(&place,
                   absl::StrCat("wire type ", static_cast<int>(type), " where ",
                                static_cast<int>(rules.type), " belongs"));
  }
  if (IsTensorData(place)) return TakeData(place);
  if (!Fits(20)) return TooLarge(place);  // the longest tag and varint
  const Tag tag = {rules.field->number(), type};
  switch (type) {
    case WireType::kVarint:
      return Varint(place, tag);
    case WireType::kFixed32:
      return Fixed(place, tag, 4);
    case WireType::kFixed64:
      return Fixed(place, tag, 8);
    default:
      return Bytes(place, tag);
  }
}

absl::Status Scan::Varint(const Place& place, Tag tag) {
  uint64_t value;
  if (!reader_.ReadVarint(value)) {
    return ErrorAt(&place, "truncated or malformed varint");
  }
  Append(tag, value);
  return CheckEnum(place, value);
}

absl::Status Scan::CheckEnum(const Place& place, uint64_t value) const {
  const FieldRules& rules = *place.rules;
  if (unknown_ != UnknownFields::kRefuse || !rules.enumeration) {
    return absl::OkStatus();
  }
  const int number = static_cast<int>(value);  // as generated code reads it
  if (rules.HasValue(number)) return absl::OkStatus();
  return ErrorAt(&place, absl::StrCat(number, " is not a value of ",
                                      rules.field->enum_type()->full_name()));
}

absl::Status Scan::Fixed(const Place& place, Tag tag, int64_t bytes) {
  if (bytes > reader_.left()) return ErrorAt(&place, "truncated");
  Append(tag);
  Copy(bytes);
  return absl::OkStatus();
}

absl::Status Scan::Bytes(const Place& place, Tag tag) {
  int64_t length;
  if (!reader_.ReadLength(length)) {
    return ErrorAt(&place, "truncated, or its length is malformed");
  }
  const FieldRules& rules = *place.rules;
  if (rules.message != nullptr) return SubMessage(place, tag, length);
  if (!Fits(length + 20)) return TooLarge(place);
  Append(tag, length);
  const int64_t start = size_;
  if (rules.packable) return Packed(place, length);
  Copy(length);
  if (rules.text && !IsUtf8(header().substr(start))) {
    return ErrorAt(&place, "not UTF-8");
  }
  return absl::OkStatus();
}

absl::Status Scan::Packed(const Place& place, int64_t length) {
  const WireType element = place.rules->type;
  if (element != WireType::kVarint) {
    if (length % (element == WireType::kFixed32 ? 4 : 8) != 0) {
      return ErrorAt(&place, "packed elements cut short");
    }
    Copy(length);
    return absl::OkStatus();
  }
  // Read where they are, then re-read from the copy by the generated parser:
  // a varint that crosses the field's end must be found here.
  const int64_t start = size_;
  Copy(length);
  const absl::string_view copy = header().substr(start);
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
  data.field = place.outer->rules->field->number();
  reader_.ViewInto(data.pieces, length);
  return absl::OkStatus();
}

absl::Status Scan::SubMessage(const Place& place, Tag tag, int64_t length) {
  // The copy is no longer than what is read. If it turns out to be shorter, its
  // length is padded to what this one takes, which parsers accept.
  Append(tag, length);
  const int64_t start = size_;
  const int64_t outer = reader_.PushLimit(length);
  if (absl::Status status = Message(*place.rules->message, &place);
      !status.ok()) {
    return status;
  }
  reader_.PopLimit(outer);
  int64_t copied = size_ - start;
  if (copied == length) return absl::OkStatus();
  const int64_t length_bytes = VarintBytes(length);
  for (int64_t i = length_bytes; i > 0; --i, copied >>= 7) {
    header_[start - i] =
        static_cast<char>((copied & 0x7F) | (i > 1 ? 0x80 : 0));
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
  const auto schema = Schema::Of(*header.GetDescriptor());
  absl::Status status = scan.Message(schema->top(), nullptr);
  // The scan is stricter than the parser; a difference would be its bug.
  if (status.ok() &&
      !header.ParseFromArray(scan.header().data(),
                             static_cast<int>(scan.header().size()))) {
    status = absl::InvalidArgumentError("message: malformed");
  }
  if (!status.ok()) {
    header.Clear();
    data.clear();
  }
  return status;
}

}  // namespace attnd::wire
