// libFuzzer on the codec. With clang: cmake -DATTND_FUZZ=ON, then
//   codec_fuzz NEW_INPUTS tests/proto/corpus
// and codec_fuzz -merge=1 to keep what finds more.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "tests/proto/fuzz/check.h"
#include "tests/proto/mutate.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = attnd::wire::testing::CheckFuzzInput(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return 0;
}

// Half libFuzzer's own mutations, half ones that know protobuf's structure.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max, unsigned seed) {
  if (size < 2 || seed % 2 == 0) return LLVMFuzzerMutate(data, size, max);
  std::mt19937_64 random(seed);
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                                size - 1);
  const std::string mutated =
      attnd::wire::testing::Mutate(random, bytes, bytes);
  if (mutated.size() + 1 > max) return LLVMFuzzerMutate(data, size, max);
  std::memcpy(data + 1, mutated.data(), mutated.size());
  return mutated.size() + 1;
}
