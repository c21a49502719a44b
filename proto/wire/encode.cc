#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attn/v1/attention.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/wire/codec.h"
#include "proto/wire/schema.h"
#include "proto/wire/status.h"
#include "proto/wire/wire_format.h"

namespace attnd::wire {
namespace {

namespace v1 = ::attn::v1;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Collects our own bytes until borrowed ones follow them.
class Pieces {
 public:
  std::string& own() { return own_; }

  void Borrow(absl::string_view bytes) {
    if (bytes.empty()) return;
    pieces_.push_back({std::move(own_), bytes});
    own_.clear();
  }

  std::vector<Piece> Finish() && {
    if (!own_.empty()) pieces_.push_back({std::move(own_), {}});
    return std::move(pieces_);
  }

 private:
  std::vector<Piece> pieces_;
  std::string own_;
};

// One field, and its body when it is length-delimited.
struct TopLevelField {
  int number;
  absl::string_view whole;
  absl::string_view body;
};

// Cuts the first field off `rest`, which generated code wrote.
TopLevelField TakeField(absl::string_view& rest) {
  Reader reader(absl::MakeConstSpan(&rest, 1));
  Tag tag;
  int64_t length = 0;
  uint64_t ignored;
  reader.ReadTag(tag);
  switch (tag.type) {
    case WireType::kVarint:
      reader.ReadVarint(ignored);
      break;
    case WireType::kBytes:
      reader.ReadLength(length);
      break;
    default:
      length = tag.type == WireType::kFixed32 ? 4 : 8;
  }
  reader.Skip(length);
  const absl::string_view whole = rest.substr(0, rest.size() - reader.left());
  rest.remove_prefix(whole.size());
  return {tag.number, whole, whole.substr(whole.size() - length)};
}

// A Tensor or Chunk whose own bytes are `header`, with `data` put last in it.
void AppendWithData(absl::string_view header, const TensorData& data,
                    Pieces& pieces) {
  static_assert(kDataField < 16, "its tag is one byte");
  const int64_t bytes = data.bytes();
  std::string& own = pieces.own();
  AppendTag({data.field, WireType::kBytes}, own);
  AppendVarint(header.size() + 1 + VarintBytes(bytes) + bytes, own);
  own.append(header.data(), header.size());
  AppendTag({kDataField, WireType::kBytes}, own);
  AppendVarint(bytes, own);
  for (absl::string_view piece : data.pieces) pieces.Borrow(piece);
}

// Whether a Tensor or a Chunk says already where its bytes are.
bool HasData(const google::protobuf::Message& message) {
  if (message.GetDescriptor() == v1::Chunk::descriptor()) {
    return !static_cast<const v1::Chunk&>(message).data().empty();
  }
  return static_cast<const v1::Tensor&>(message).storage_case() !=
         v1::Tensor::STORAGE_NOT_SET;
}

// Whether a message can have but one of the two.
bool Exclude(const FieldDescriptor* a, const FieldDescriptor* b) {
  return a == b || (a != nullptr && b != nullptr &&
                    a->real_containing_oneof() != nullptr &&
                    a->real_containing_oneof() == b->real_containing_oneof());
}

// Whether `header` or `others` has data for `field` already, or another member
// of its oneof.
bool IsTaken(const google::protobuf::Message& header,
             const FieldDescriptor* field,
             absl::Span<const TensorData> others) {
  const google::protobuf::Reflection& reflection = *header.GetReflection();
  if (const auto* oneof = field->real_containing_oneof(); oneof != nullptr) {
    const auto* member = reflection.GetOneofFieldDescriptor(header, oneof);
    if (member != nullptr && member != field) return true;
  }
  return HasData(reflection.GetMessage(header, field)) ||
         std::any_of(others.begin(), others.end(), [&](const TensorData& o) {
           return Exclude(field,
                          header.GetDescriptor()->FindFieldByNumber(o.field));
         });
}

// Each entry names a Tensor or Chunk field of its own that has no data in
// `header`, and all of it fits into one message.
absl::Status Check(const google::protobuf::Message& header,
                   int64_t header_bytes, absl::Span<const TensorData> data) {
  const Descriptor& type = *header.GetDescriptor();
  int64_t total = header_bytes;
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorData& entry = data[i];
    const FieldDescriptor* field = type.FindFieldByNumber(entry.field);
    if (field == nullptr || field->is_repeated() ||
        !CarriesData(field->message_type())) {
      return absl::InvalidArgumentError(
          absl::StrCat(type.full_name(), " has no Tensor field ", entry.field));
    }
    if (IsTaken(header, field, data.subspan(i + 1))) {
      return FieldError(field->name(), "given twice, or not alone of a oneof");
    }
    total += entry.bytes() + 16;  // at most that for two tags and lengths
    if (total > kMaxMessageBytes) {
      return FieldError(field->name(),
                        absl::StrCat("makes the message larger than ",
                                     kMaxMessageBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Piece>> Encode(
    const google::protobuf::Message& header,
    absl::Span<const TensorData> data) {
  const int64_t header_bytes = header.ByteSizeLong();
  if (header_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message: ", header_bytes, " bytes, over ", kMaxMessageBytes));
  }
  if (absl::Status status = Check(header, header_bytes, data); !status.ok()) {
    return status;
  }
  std::string bytes(header_bytes, '\0');
  header.SerializeWithCachedSizesToArray(
      reinterpret_cast<uint8_t*>(bytes.data()));
  if (data.empty()) {
    std::vector<Piece> whole(1);
    whole.front().owned = std::move(bytes);
    return whole;
  }

  // The header as generated code writes it, cut at its top-level fields, with
  // data put into its Tensors.
  Pieces pieces;
  pieces.own().reserve(bytes.size() + 16);
  std::vector<bool> done(data.size());
  absl::string_view rest = bytes;
  while (!rest.empty()) {
    const TopLevelField field = TakeField(rest);
    const auto entry = std::find_if(
        data.begin(), data.end(),
        [&field](const TensorData& d) { return d.field == field.number; });
    if (entry == data.end()) {
      pieces.own().append(field.whole.data(), field.whole.size());
    } else {
      AppendWithData(field.body, *entry, pieces);
      done[entry - data.begin()] = true;
    }
  }
  for (size_t i = 0; i < data.size(); ++i) {
    if (!done[i]) AppendWithData({}, data[i], pieces);
  }
  return std::move(pieces).Finish();
}

}  // namespace attnd::wire
