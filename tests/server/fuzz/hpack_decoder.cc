#include "tests/server/fuzz/hpack_decoder.h"

#include <vector>

#include "tests/server/fuzz/hpack_tables.h"

namespace attnd::server::http2::testing {
namespace {

constexpr int kEndOfString = 256;
// As a decoder may bound what it takes for a number (section 5.1).
constexpr uint64_t kMostInteger = uint64_t{1} << 31;
constexpr int kMostIntegerBytes = 5;  // behind the prefix

// Codes as a tree: nodes have two branches, to a node (> 0), to a symbol (<=
// 0), or nowhere.
struct Tree {
  static constexpr int kNowhere = 1 << 20;
  std::vector<int> branches = {kNowhere, kNowhere};

  Tree() {
    for (int symbol = 0; symbol <= kEndOfString; ++symbol) Add(symbol);
  }
  void Add(int symbol) {
    const HuffmanCode& code = kHuffmanCodes[symbol];
    int node = 0;
    for (int bit = code.bits - 1; bit > 0; --bit) {
      const size_t at = 2 * node + (code.code >> bit & 1);
      if (branches[at] == kNowhere) {
        branches[at] = static_cast<int>(branches.size() / 2);
        branches.insert(branches.end(), {kNowhere, kNowhere});
      }
      node = branches[at];
    }
    branches[2 * node + (code.code & 1)] = -symbol;
  }
};

bool DecodeHuffman(absl::string_view bytes, std::string* text) {
  static const Tree& tree = *new Tree;
  int node = 0, pending = 0;
  bool are_ones = true;
  for (const char byte : bytes) {
    for (int bit = 7; bit >= 0; --bit) {
      const int value = static_cast<uint8_t>(byte) >> bit & 1;
      const int next = tree.branches[2 * node + value];
      ++pending;
      are_ones = are_ones && value == 1;
      if (next > 0) {
        node = next;
        continue;
      }
      if (-next == kEndOfString) return false;
      text->push_back(static_cast<char>(-next));
      node = pending = 0;
      are_ones = true;
    }
  }
  return pending < 8 && are_ones;
}

}  // namespace

bool HpackDecoder::Decode(absl::string_view block, size_t* bytes) {
  left_ = block;
  *bytes = 0;
  bool at_start = true;
  int limits = 0;  // two at most: the least since the last block, and the last
  while (!left_.empty()) {
    if (static_cast<uint8_t>(left_[0]) >> 5 == 1) {
      uint64_t limit = 0;
      if (!at_start || ++limits > 2 || !Integer(5, &limit) || limit > most_) {
        return false;
      }
      limit_ = limit;
      Shrink(limit_);
      continue;
    }
    at_start = false;
    HeaderField field;
    if (!OneField(&field)) return false;
    *bytes += field.size();
  }
  return true;
}

bool HpackDecoder::OneField(HeaderField* field) {
  const auto first = static_cast<uint8_t>(left_[0]);
  uint64_t index = 0;
  if (first >= 0x80) return Integer(7, &index) && Lookup(index, field);
  const bool is_kept = first >= 0x40;
  if (!Integer(is_kept ? 6 : 4, &index)) return false;
  if (index > 0 ? !Lookup(index, field) : !String(&field->name)) return false;
  field->value.clear();
  if (!String(&field->value)) return false;
  if (!is_kept) return true;
  if (field->size() > limit_) {
    Shrink(0);
    return true;
  }
  Shrink(limit_ - field->size());
  used_ += field->size();
  table_.push_front(*field);
  return true;
}

bool HpackDecoder::Integer(int prefix_bits, uint64_t* value) {
  if (left_.empty()) return false;
  const uint64_t full = (1u << prefix_bits) - 1;
  *value = static_cast<uint8_t>(left_[0]) & full;
  left_.remove_prefix(1);
  if (*value < full) return true;
  for (int i = 0; i < kMostIntegerBytes && !left_.empty(); ++i) {
    const auto byte = static_cast<uint8_t>(left_[0]);
    left_.remove_prefix(1);
    *value += static_cast<uint64_t>(byte % 128) << (7 * i);
    if (*value > kMostInteger) return false;
    if (byte < 128) return true;
  }
  return false;
}

bool HpackDecoder::String(std::string* text) {
  if (left_.empty()) return false;
  const bool is_huffman = static_cast<uint8_t>(left_[0]) >= 0x80;
  uint64_t size = 0;
  if (!Integer(7, &size) || size > left_.size()) return false;
  const absl::string_view bytes = left_.substr(0, size);
  left_.remove_prefix(size);
  if (is_huffman) return DecodeHuffman(bytes, text);
  text->assign(bytes.data(), bytes.size());
  return true;
}

bool HpackDecoder::Lookup(uint64_t index, HeaderField* field) const {
  if (index == 0) return false;
  if (index <= kStaticFields.size()) {
    field->name = std::string(kStaticFields[index - 1].name);
    field->value = std::string(kStaticFields[index - 1].value);
    return true;
  }
  index -= kStaticFields.size() + 1;
  if (index >= table_.size()) return false;
  *field = table_[index];
  return true;
}

void HpackDecoder::Shrink(size_t most) {
  while (used_ > most) {
    used_ -= table_.back().size();
    table_.pop_back();
  }
}

void AppendInteger(uint64_t value, int prefix_bits, uint8_t first,
                   std::string& to) {
  const uint64_t full = (1u << prefix_bits) - 1;
  if (value < full) {
    to.push_back(static_cast<char>(first | value));
    return;
  }
  to.push_back(static_cast<char>(first | full));
  for (value -= full; value >= 128; value /= 128) {
    to.push_back(static_cast<char>(value % 128 + 128));
  }
  to.push_back(static_cast<char>(value));
}

void AppendString(absl::string_view text, bool huffman, std::string& to) {
  if (!huffman) {
    AppendInteger(text.size(), 7, 0, to);
    to.append(text.data(), text.size());
    return;
  }
  std::string bytes;
  uint64_t bits = 0;
  int count = 0;
  const auto write = [&] {
    for (; count >= 8; count -= 8) {
      bytes.push_back(static_cast<char>(bits >> (count - 8)));
    }
  };
  for (const char c : text) {
    const HuffmanCode& code = kHuffmanCodes[static_cast<uint8_t>(c)];
    bits = bits << code.bits | code.code;
    count += code.bits;
    write();
  }
  if (count > 0) {
    bits = bits << (8 - count) | ((1u << (8 - count)) - 1);
    count = 8;
    write();
  }
  AppendInteger(bytes.size(), 7, 0x80, to);
  to += bytes;
}

}  // namespace attnd::server::http2::testing
