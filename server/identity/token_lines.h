#ifndef ATTND_SERVER_IDENTITY_TOKEN_LINES_H_
#define ATTND_SERVER_IDENTITY_TOKEN_LINES_H_

// What an operator writes of who may call. A line is
//
//   NAME sha256:HASH [rate=N] [queued_bytes=N] [queued_flops=N] [shares=N]
//                    [priority=low|normal|high]
//
//   NAME          1 to 64 of A-Z a-z 0-9 . _ -
//   HASH          64 hexadecimal digits: printf %s "$TOKEN" | sha256sum
//   rate          calls a second
//   queued_bytes  decimal, with KiB, MiB, GiB or TiB behind it or nothing
//   queued_flops  floating-point operations that may wait
//   shares        0.01 to 100, of the devices' time beside others' one each
//   priority      the highest that its requests may have; unless given, normal
//
// A limit of 0 is none, and one that is not given is the flags'. Words are
// parted by blanks. Empty lines and those that begin with # say nothing. A name
// may be on several lines, one for each of its tokens, so that it changes its
// token without a gap; its limits are on the first. The last line ends with a
// newline, or else the file is torn, and so is one without any token.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/identity/token_set.h"

namespace attnd::server {

// A call with a token looks at all of them.
inline constexpr int64_t kMostTokens = 1024;

// INVALID_ARGUMENT "LINE: what is wrong", which repeats nothing of the line:
// somebody may have written a token where its hash belongs.
absl::StatusOr<TokenSet> ParseTokens(absl::string_view text);

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_TOKEN_LINES_H_
