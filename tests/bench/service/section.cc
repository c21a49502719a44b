#include "tests/bench/service/section.h"

namespace attnd::bench {

std::unique_ptr<testing::ServerProcess> StartAttnd(
    const std::vector<std::string>& flags, int log) {
  return Get(testing::ServerProcess::Start(ATTND_BINARY, flags, log));
}

}  // namespace attnd::bench
