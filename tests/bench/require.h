#ifndef ATTND_TESTS_BENCH_REQUIRE_H_
#define ATTND_TESTS_BENCH_REQUIRE_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace attnd::bench {

// The value, or the end of the program: a benchmark has nothing else to do.
void Require(const absl::Status& status);
template <typename T>
T Get(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_REQUIRE_H_
