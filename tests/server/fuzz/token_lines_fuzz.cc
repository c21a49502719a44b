// libFuzzer on the lines of a token file. With clang: cmake -DATTND_FUZZ=ON,
// then
//   token_lines_fuzz NEW_INPUTS tests/server/fuzz/corpus

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/server/fuzz/token_lines_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = attnd::server::CheckTokenLines(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return 0;
}
