#ifndef ATTND_TESTS_SERVER_FUZZ_FUZZ_TARGET_H_
#define ATTND_TESTS_SERVER_FUZZ_FUZZ_TARGET_H_

// What libFuzzer's targets have in common.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max);

namespace attnd::server::testing {

// Fails the run where a check does.
inline int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

inline absl::string_view TextOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Half libFuzzer's own mutations, half `mutate`'s, which knows what inputs are
// made of.
template <typename Mutate>
size_t MutateEitherWay(uint8_t* data, size_t size, size_t max, unsigned seed,
                       Mutate mutate) {
  std::minstd_rand random(seed);
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, max);
  const std::string mutated = mutate(random, TextOf(data, size));
  if (mutated.size() > max) return LLVMFuzzerMutate(data, size, max);
  std::memcpy(data, mutated.data(), mutated.size());
  return mutated.size();
}

}  // namespace attnd::server::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_FUZZ_TARGET_H_
