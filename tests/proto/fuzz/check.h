#ifndef ATTND_TESTS_PROTO_FUZZ_CHECK_H_
#define ATTND_TESTS_PROTO_FUZZ_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd::wire::testing {

// What one fuzzer input checks. Its first byte picks the message's type, or a
// google.rpc.Status; the rest are the message's bytes.
absl::Status CheckFuzzInput(absl::string_view input);

}  // namespace attnd::wire::testing

#endif  // ATTND_TESTS_PROTO_FUZZ_CHECK_H_
