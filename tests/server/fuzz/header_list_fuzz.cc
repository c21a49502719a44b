// libFuzzer on compressed headers. With clang:
// cmake -DATTND_FUZZ=ON, then
//   header_list_fuzz -max_len=128 NEW_INPUTS CORPUS
// where CORPUS is tests/server/fuzz/corpus/header_list.

#include <cstddef>
#include <cstdint>

#include "tests/server/fuzz/fuzz_target.h"
#include "tests/server/fuzz/header_list_check.h"

using attnd::server::http2::testing::CheckHeaderList;
using attnd::server::http2::testing::MutateHeaderList;
using attnd::server::testing::MutateEitherWay;
using attnd::server::testing::Report;
using attnd::server::testing::TextOf;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return Report(CheckHeaderList(TextOf(data, size)));
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max, unsigned seed) {
  return MutateEitherWay(data, size, max, seed, MutateHeaderList);
}
