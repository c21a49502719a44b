// libFuzzer on the lines of a token file. With clang: cmake -DATTND_FUZZ=ON,
// then
//   token_lines_fuzz -max_len=1024 NEW_INPUTS CORPUS
// where CORPUS is tests/server/fuzz/corpus/token_lines.

#include <cstddef>
#include <cstdint>

#include "tests/server/fuzz/fuzz_target.h"
#include "tests/server/fuzz/token_lines_check.h"

using attnd::server::testing::Report;
using attnd::server::testing::TextOf;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return Report(attnd::server::CheckTokenLines(TextOf(data, size)));
}
