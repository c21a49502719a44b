#ifndef ATTND_TESTS_BENCH_SECURITY_CUTS_H_
#define ATTND_TESTS_BENCH_SECURITY_CUTS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace attnd::bench {

// An end later than both is late.
inline constexpr int64_t kMostFrames = 1000;
inline constexpr int64_t kMostBytes = 1 << 20;

// What attnd's log says of connections that it ended: the most of each.
struct Cuts {
  int64_t seen = 0;  // lines; of many connections the log leaves most out
  int64_t late = 0;  // of those
  int64_t frames = 0;
  int64_t bytes = 0;
};

// Of each line "..., after 12 frames and 81920 bytes" in `log`. Ends the
// program where a number of one cannot be read.
Cuts CutsIn(absl::string_view log);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_CUTS_H_
