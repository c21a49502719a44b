#ifndef ATTND_TESTS_SERVER_FUZZ_HPACK_DECODER_H_
#define ATTND_TESTS_SERVER_FUZZ_HPACK_DECODER_H_

// HPACK (RFC 7541) as one would write it down: with all strings. What the
// server, which keeps lengths only, is compared with.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/strings/string_view.h"

namespace attnd::server::http2::testing {

struct HeaderField {
  std::string name, value;
  size_t size() const { return 32 + name.size() + value.size(); }
};

// Not thread-safe.
class HpackDecoder {
 public:
  explicit HpackDecoder(size_t most_table_bytes)
      : most_(most_table_bytes), limit_(most_table_bytes) {}

  // The bytes that all fields of a whole block count. False: it is malformed.
  bool Decode(absl::string_view block, size_t* bytes);

 private:
  bool Integer(int prefix_bits, uint64_t* value);
  bool String(std::string* text);
  bool Lookup(uint64_t index, HeaderField* field) const;
  bool OneField(HeaderField* field);
  void Shrink(size_t most);

  const size_t most_;
  size_t limit_;
  size_t used_ = 0;
  std::deque<HeaderField> table_;  // the newest first
  absl::string_view left_;         // of the block
};

// The opposite, for what shall be well-formed: a number behind `first`, whose
// low `prefix_bits` it takes, and a string, in Huffman's code or not.
void AppendInteger(uint64_t value, int prefix_bits, uint8_t first,
                   std::string& to);
void AppendString(absl::string_view text, bool huffman, std::string& to);

}  // namespace attnd::server::http2::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_HPACK_DECODER_H_
