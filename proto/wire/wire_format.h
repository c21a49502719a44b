#ifndef ATTND_PROTO_WIRE_WIRE_FORMAT_H_
#define ATTND_PROTO_WIRE_WIRE_FORMAT_H_

// The protobuf wire format, byte by byte: what codec and status share.

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace attnd::wire {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

struct Tag {
  int number = 0;
  WireType type = WireType::kVarint;
};

// Writes 1 to 10 bytes to `out`, and returns where they end.
inline char* WriteVarint(uint64_t value, char* out) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
  *out++ = static_cast<char>(value);
  return out;
}
inline char* WriteTag(Tag tag, char* out) {
  return WriteVarint(
      static_cast<uint32_t>(tag.number) << 3 | static_cast<uint32_t>(tag.type),
      out);
}
int64_t VarintBytes(uint64_t value);

void AppendVarint(uint64_t value, std::string& out);
void AppendTag(Tag tag, std::string& out);
// A length-delimited field.
void AppendField(int number, absl::string_view bytes, std::string& out);

// Whether `text` is what a proto3 string may hold: no overlong forms, no
// surrogates, nothing past U+10FFFF.
bool IsUtf8(absl::string_view text);

// Reads the concatenation of `fragments`, which must outlive it, from the
// front. Never past the innermost limit, and values may straddle fragments. A
// read that returns false leaves the position unspecified: the input is bad.
class Reader {
 public:
  explicit Reader(absl::Span<const absl::string_view> fragments);

  // Bytes to the innermost limit.
  int64_t left() const { return left_; }

  // At most 10 bytes and 64 bits.
  bool ReadVarint(uint64_t& value) {
    return ReadByte(value) || ReadVarint(10, 1, value);
  }
  // Refuses field number 0 and wire types that do not exist.
  bool ReadTag(Tag& tag);
  // A length that fits within the limit.
  bool ReadLength(int64_t& length);

  // Precondition of the next three: 0 <= n <= left().
  void Skip(int64_t n);
  void CopyTo(char* out, int64_t n);
  // Adds views of the next `n` bytes, none of them empty, to `pieces`.
  template <typename Pieces>
  void ViewInto(Pieces& pieces, int64_t n) {
    Consume(n, [&pieces](absl::string_view view) { pieces.push_back(view); });
  }

  // Narrows the limit to the next `n` bytes; what it returns undoes that once
  // they are read. Precondition: n <= left().
  int64_t PushLimit(int64_t n) {
    const int64_t outer = left_ - n;
    left_ = n;
    return outer;
  }
  void PopLimit(int64_t outer) { left_ += outer; }

 private:
  // One of a single byte, if that is next; otherwise nothing is read.
  bool ReadByte(uint64_t& value) {
    if (left_ == 0 || at_ == end_ || (*at_ & 0x80) != 0) return false;
    --left_;
    value = static_cast<uint8_t>(*at_++);
    return true;
  }
  // Of at most `max_bytes`, the last of which is at most `last_max`.
  bool ReadVarint(int max_bytes, uint8_t last_max, uint64_t& value);
  void NextFragment();

  template <typename Use>
  void Consume(int64_t n, Use use) {
    left_ -= n;
    while (n > 0) {
      if (at_ == end_) NextFragment();
      const int64_t here = n < end_ - at_ ? n : end_ - at_;
      use(absl::string_view(at_, here));
      at_ += here;
      n -= here;
    }
  }

  absl::Span<const absl::string_view> rest_;  // fragments after [at_, end_)
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  int64_t left_ = 0;
};

}  // namespace attnd::wire

#endif  // ATTND_PROTO_WIRE_WIRE_FORMAT_H_
