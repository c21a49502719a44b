// libFuzzer on certificates, as clients show them. With clang:
// cmake -DATTND_FUZZ=ON, then
//   certificate_fuzz -max_len=1024 NEW_INPUTS CORPUS
// where CORPUS is tests/server/fuzz/corpus/certificate.

#include <cstddef>
#include <cstdint>

#include "tests/server/fuzz/certificate_check.h"
#include "tests/server/fuzz/fuzz_target.h"

using attnd::server::testing::MutateEitherWay;
using attnd::server::testing::Report;
using attnd::server::testing::TextOf;
using attnd::server::tls::testing::CheckCertificate;
using attnd::server::tls::testing::MutateDer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return Report(CheckCertificate(TextOf(data, size)));
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max, unsigned seed) {
  return MutateEitherWay(data, size, max, seed, MutateDer);
}
