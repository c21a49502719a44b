#ifndef ATTND_TESTS_SERVER_FUZZ_INSPECTOR_SCRIPT_H_
#define ATTND_TESTS_SERVER_FUZZ_INSPECTOR_SCRIPT_H_

// A connection between a client and gRPC, as few bytes say it, so that whatever
// a fuzzer makes of them is a connection again, mostly of whole frames.

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/http2/inspector.h"

namespace attnd::server::http2::testing {

// What one end sends at one time.
struct Event {
  bool is_server = false;
  absl::Time at;
  std::string bytes;
};

struct Script {
  InspectorOptions options;
  uint32_t seed = 0;  // of how events are cut into pieces
  std::vector<Event> events;
};

// A script of `input`: two bytes say the options, the greeting and the seed;
// then come steps of four bytes, kind, flags, stream and size, and after some
// of them as many as the size says. What is made of it is reused: `script` is
// filled anew and its memory kept. At most kMostScriptBytes are sent.
inline constexpr size_t kMostScriptBytes = 1536;
void ReadScript(absl::string_view input, Script& script);

// An input of a few steps, and one that is `input` with steps added, repeated,
// taken out or changed.
std::string FreshScript(std::minstd_rand& random);
std::string MutateScript(std::minstd_rand& random, absl::string_view input);

}  // namespace attnd::server::http2::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_INSPECTOR_SCRIPT_H_
