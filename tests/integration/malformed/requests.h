#ifndef ATTND_TESTS_INTEGRATION_MALFORMED_REQUESTS_H_
#define ATTND_TESTS_INTEGRATION_MALFORMED_REQUESTS_H_

// Good requests as frames, to be spoiled.

#include <cstdint>
#include <string>

#include "tests/integration/http2_bytes.h"

namespace attnd::testing {

// The value of a header that is left out.
inline constexpr char kNone[] = "\r\n";
inline constexpr char kForwardPath[] = "/attn.v1.AttentionService/Forward";

// A good request's header block, with those of `changes` in place of its own of
// the same name; other pseudo headers come first, other headers last.
std::string GoodHeaders(const HeaderList& changes = {});
// A good message, behind its prefix.
std::string GoodBody();
// All of a call on `stream`: HEADERS, and its message in one DATA.
std::string GoodCall(uint32_t stream, const HeaderList& changes = {});
// HEADERS that open stream 1, whose message is still to come.
std::string OpenStream();
// A call on stream 1 whose messages are `body`, prefixes included.
std::string CallWithBody(const std::string& body);
// A call on stream 1 with a good message, whose headers are `block`.
std::string CallWithBlock(const std::string& block);
// A call on stream 1 that the server keeps open although its client has sent
// everything.
std::string WatchCall();

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_MALFORMED_REQUESTS_H_
