#ifndef ATTND_TESTS_SERVER_FUZZ_TOKEN_LINES_CHECK_H_
#define ATTND_TESTS_SERVER_FUZZ_TOKEN_LINES_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd::server {

// Whether ParseTokens takes `text` as it should, whatever it is: limits within
// their bounds, nothing of a hash in an error, and of what is good no part that
// ends within a line. `*accepted`, unless null: whether it is good.
absl::Status CheckTokenLines(absl::string_view text, bool* accepted = nullptr);

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FUZZ_TOKEN_LINES_CHECK_H_
