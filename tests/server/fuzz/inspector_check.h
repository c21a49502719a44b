#ifndef ATTND_TESTS_SERVER_FUZZ_INSPECTOR_CHECK_H_
#define ATTND_TESTS_SERVER_FUZZ_INSPECTOR_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd::server::http2::testing {

// Whether an Inspector does what its header says with the connection that
// `input` is a script of (inspector_script.h): what it lets through keeps to
// the rules and to the budgets, as counted again here; however the bytes are
// cut, the same is said at the same time; a violation stays; bytes and frames
// are counted right. `*violated`, unless null: whether there was a violation.
absl::Status CheckInspector(absl::string_view input, bool* violated = nullptr);

}  // namespace attnd::server::http2::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_INSPECTOR_CHECK_H_
