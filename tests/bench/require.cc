#include "tests/bench/require.h"

#include <errno.h>

#include <cstdio>
#include <cstdlib>

namespace attnd::bench {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name,
               status.ToString().c_str());
  std::exit(2);
}

}  // namespace attnd::bench
