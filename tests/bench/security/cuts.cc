#include "tests/bench/security/cuts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/bench/require.h"

namespace attnd::bench {

Cuts CutsIn(absl::string_view log) {
  Cuts cuts;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, ", after ");
    if (parts.size() != 2) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(parts[1], ' ');
    int64_t frames = 0, bytes = 0;
    if (words.size() < 5 || !absl::SimpleAtoi(words[0], &frames) ||
        !absl::SimpleAtoi(words[3], &bytes)) {
      Require(absl::InternalError(absl::StrCat("a line of the log: ", line)));
    }
    ++cuts.seen;
    cuts.late += frames > kMostFrames && bytes > kMostBytes;
    cuts.frames = std::max(cuts.frames, frames);
    cuts.bytes = std::max(cuts.bytes, bytes);
  }
  return cuts;
}

}  // namespace attnd::bench
