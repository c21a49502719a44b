#ifndef ATTND_SERVER_HTTP2_HEADER_LIST_H_
#define ATTND_SERVER_HTTP2_HEADER_LIST_H_

// How large the headers are that a compressed block stands for.

#include <cstdint>
#include <deque>
#include <optional>

#include "server/http2/frame.h"

namespace attnd::server::http2 {

// HPACK's decoder (RFC 7541) without the strings: of each header, and of each
// entry of the table, it keeps how long name and value are. A block of a few
// bytes can stand for many headers, by naming an entry again and again. Not
// thread-safe.
class HeaderListSizer {
 public:
  // `most_table_bytes` is what SETTINGS_HEADER_TABLE_SIZE allows.
  explicit HeaderListSizer(uint32_t most_table_bytes)
      : most_table_bytes_(most_table_bytes), table_limit_(most_table_bytes) {}

  // The size of what a whole block stands for, as SETTINGS_MAX_HEADER_LIST_SIZE
  // counts: names, values, and 32 bytes for each header. Blocks come in the
  // order in which they were received. Nothing: the block is malformed, and so
  // are all that follow.
  std::optional<uint64_t> Add(Bytes block);

 private:
  struct Entry {
    uint32_t name = 0;
    uint32_t value = 0;
    uint64_t size() const { return uint64_t{32} + name + value; }
  };

  // Each takes what it reads off `block`; nothing: it is not there.
  static std::optional<uint32_t> TakeInteger(Bytes& block, int prefix_bits);
  static std::optional<uint32_t> TakeStringLength(Bytes& block);
  std::optional<Entry> TakeHeader(Bytes& block);
  bool TakeTableSize(Bytes& block);

  std::optional<Entry> Find(uint32_t index) const;
  void Insert(const Entry& entry);
  void EvictDownTo(uint64_t bytes);

  const uint32_t most_table_bytes_;
  uint32_t table_limit_;  // as the peer has chosen it
  uint64_t table_bytes_ = 0;
  std::deque<Entry> table_;  // the newest first
};

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_HEADER_LIST_H_
