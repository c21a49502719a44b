// libFuzzer on what a client and gRPC send each other. With clang:
// cmake -DATTND_FUZZ=ON, then
//   inspector_fuzz -max_len=160 NEW_INPUTS CORPUS
// where CORPUS is tests/server/fuzz/corpus/inspector.

#include <cstddef>
#include <cstdint>

#include "tests/server/fuzz/fuzz_target.h"
#include "tests/server/fuzz/inspector_check.h"
#include "tests/server/fuzz/inspector_script.h"

using attnd::server::http2::testing::CheckInspector;
using attnd::server::http2::testing::MutateScript;
using attnd::server::testing::MutateEitherWay;
using attnd::server::testing::Report;
using attnd::server::testing::TextOf;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return Report(CheckInspector(TextOf(data, size)));
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max, unsigned seed) {
  return MutateEitherWay(data, size, max, seed, MutateScript);
}
