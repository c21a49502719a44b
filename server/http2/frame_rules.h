#ifndef ATTND_SERVER_HTTP2_FRAME_RULES_H_
#define ATTND_SERVER_HTTP2_FRAME_RULES_H_

#include <cstdint>
#include <optional>

#include "server/http2/frame.h"
#include "server/http2/violation.h"

namespace attnd::server::http2 {

// What a client's frame breaks by itself, whatever came before it: the length
// and the stream that section 6 of RFC 9113 allows its type. `max_frame_bytes`
// is what SETTINGS_MAX_FRAME_SIZE allows.
std::optional<Violation> CheckFrame(const Frame& frame,
                                    uint32_t max_frame_bytes);

// The same of a setting's value (section 6.5.2).
std::optional<Violation> CheckSetting(uint16_t id, uint32_t value);

}  // namespace attnd::server::http2

#endif  // ATTND_SERVER_HTTP2_FRAME_RULES_H_
