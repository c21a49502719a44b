#ifndef ATTND_SERVER_HTTP2_HUFFMAN_H_
#define ATTND_SERVER_HTTP2_HUFFMAN_H_

#include <cstdint>
#include <optional>

#include "server/http2/frame.h"

namespace attnd::server::http2 {

// How many bytes a string of HPACK's Huffman code (RFC 7541, section 5.2 and
// appendix B) stands for. Nothing: it is none, as what pads its last byte is
// not the beginning of the end-of-string symbol, or that symbol is in it.
std::optional<uint32_t> HuffmanLength(Bytes encoded);

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_HUFFMAN_H_
