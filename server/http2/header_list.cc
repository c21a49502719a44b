#include "server/http2/header_list.h"

#include <array>
#include <cstddef>
#include <iterator>

#include "absl/strings/string_view.h"
#include "server/http2/huffman.h"

namespace attnd::server::http2 {
namespace {

struct StaticHeader {
  absl::string_view name, value;
};

// RFC 7541, appendix A.
constexpr StaticHeader kStatic[] = {
    {":authority", ""},
    {":method", "GET"},
    {":method", "POST"},
    {":path", "/"},
    {":path", "/index.html"},
    {":scheme", "http"},
    {":scheme", "https"},
    {":status", "200"},
    {":status", "204"},
    {":status", "206"},
    {":status", "304"},
    {":status", "400"},
    {":status", "404"},
    {":status", "500"},
    {"accept-charset", ""},
    {"accept-encoding", "gzip, deflate"},
    {"accept-language", ""},
    {"accept-ranges", ""},
    {"accept", ""},
    {"access-control-allow-origin", ""},
    {"age", ""},
    {"allow", ""},
    {"authorization", ""},
    {"cache-control", ""},
    {"content-disposition", ""},
    {"content-encoding", ""},
    {"content-language", ""},
    {"content-length", ""},
    {"content-location", ""},
    {"content-range", ""},
    {"content-type", ""},
    {"cookie", ""},
    {"date", ""},
    {"etag", ""},
    {"expect", ""},
    {"expires", ""},
    {"from", ""},
    {"host", ""},
    {"if-match", ""},
    {"if-modified-since", ""},
    {"if-none-match", ""},
    {"if-range", ""},
    {"if-unmodified-since", ""},
    {"last-modified", ""},
    {"link", ""},
    {"location", ""},
    {"max-forwards", ""},
    {"proxy-authenticate", ""},
    {"proxy-authorization", ""},
    {"range", ""},
    {"referer", ""},
    {"refresh", ""},
    {"retry-after", ""},
    {"server", ""},
    {"set-cookie", ""},
    {"strict-transport-security", ""},
    {"transfer-encoding", ""},
    {"user-agent", ""},
    {"vary", ""},
    {"via", ""},
    {"www-authenticate", ""},
};
static_assert(std::size(kStatic) == 61);

// More than any length in a block that is bounded.
constexpr uint64_t kMostInteger = uint64_t{1} << 31;
// Of the table, that a block may begin with: the least since the block before
// it, and the last (section 4.2).
constexpr int kMostTableSizes = 2;

}  // namespace

std::optional<uint64_t> HeaderListSizer::Add(Bytes block) {
  uint64_t size = 0;
  bool had_header = false;
  int table_sizes = 0;
  while (!block.empty()) {
    if ((block[0] & 0xe0) == 0x20) {
      if (had_header || ++table_sizes > kMostTableSizes ||
          !TakeTableSize(block)) {
        return std::nullopt;
      }
      continue;
    }
    const std::optional<Entry> header = TakeHeader(block);
    if (!header.has_value()) return std::nullopt;
    had_header = true;
    size += header->size();
  }
  return size;
}

std::optional<HeaderListSizer::Entry> HeaderListSizer::TakeHeader(
    Bytes& block) {
  const uint8_t first = block[0];
  if ((first & 0x80) != 0) {
    const std::optional<uint32_t> index = TakeInteger(block, 7);
    return index.has_value() ? Find(*index) : std::nullopt;
  }
  const bool inserts = (first & 0x40) != 0;
  const std::optional<uint32_t> index = TakeInteger(block, inserts ? 6 : 4);
  if (!index.has_value()) return std::nullopt;
  Entry header;
  if (*index == 0) {
    const std::optional<uint32_t> name = TakeStringLength(block);
    if (!name.has_value()) return std::nullopt;
    header.name = *name;
  } else {
    const std::optional<Entry> known = Find(*index);
    if (!known.has_value()) return std::nullopt;
    header.name = known->name;
  }
  const std::optional<uint32_t> value = TakeStringLength(block);
  if (!value.has_value()) return std::nullopt;
  header.value = *value;
  if (inserts) Insert(header);
  return header;
}

bool HeaderListSizer::TakeTableSize(Bytes& block) {
  const std::optional<uint32_t> bytes = TakeInteger(block, 5);
  if (!bytes.has_value() || *bytes > most_table_bytes_) return false;
  table_limit_ = *bytes;
  EvictDownTo(table_limit_);
  return true;
}

// Section 5.1.
std::optional<uint32_t> HeaderListSizer::TakeInteger(Bytes& block,
                                                     int prefix_bits) {
  if (block.empty()) return std::nullopt;
  const uint32_t most = (1u << prefix_bits) - 1;
  uint64_t value = block[0] & most;
  block.remove_prefix(1);
  if (value < most) return static_cast<uint32_t>(value);
  for (int shift = 0; shift <= 28; shift += 7) {
    if (block.empty()) return std::nullopt;
    const uint8_t byte = block[0];
    block.remove_prefix(1);
    value += uint64_t{byte & 0x7fu} << shift;
    if (value > kMostInteger) return std::nullopt;
    if ((byte & 0x80) == 0) return static_cast<uint32_t>(value);
  }
  return std::nullopt;
}

// Section 5.2. How long the string is once it is decoded.
std::optional<uint32_t> HeaderListSizer::TakeStringLength(Bytes& block) {
  if (block.empty()) return std::nullopt;
  const bool is_huffman = (block[0] & 0x80) != 0;
  const std::optional<uint32_t> length = TakeInteger(block, 7);
  if (!length.has_value() || *length > block.size()) return std::nullopt;
  const Bytes string = block.first(*length);
  block.remove_prefix(*length);
  return is_huffman ? HuffmanLength(string) : length;
}

std::optional<HeaderListSizer::Entry> HeaderListSizer::Find(
    uint32_t index) const {
  if (index == 0) return std::nullopt;
  if (index <= std::size(kStatic)) {
    const StaticHeader& header = kStatic[index - 1];
    return Entry{static_cast<uint32_t>(header.name.size()),
                 static_cast<uint32_t>(header.value.size())};
  }
  const size_t at = index - 1 - std::size(kStatic);
  if (at >= table_.size()) return std::nullopt;
  return table_[at];
}

// Section 4.4: one that is larger than the table empties it.
void HeaderListSizer::Insert(const Entry& entry) {
  if (entry.size() > table_limit_) return EvictDownTo(0);
  EvictDownTo(table_limit_ - entry.size());
  table_.push_front(entry);
  table_bytes_ += entry.size();
}

void HeaderListSizer::EvictDownTo(uint64_t bytes) {
  while (table_bytes_ > bytes) {
    table_bytes_ -= table_.back().size();
    table_.pop_back();
  }
}

}  // namespace attnd::server::http2
