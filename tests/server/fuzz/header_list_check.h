#ifndef ATTND_TESTS_SERVER_FUZZ_HEADER_LIST_CHECK_H_
#define ATTND_TESTS_SERVER_FUZZ_HEADER_LIST_CHECK_H_

#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd::server::http2::testing {

// Whether HeaderListSizer finds the sizes that a whole decoder finds, and the
// same blocks malformed, in a connection's blocks: the first byte of `input`
// picks the table's size, then come blocks, each behind a byte that has its
// length. `*accepted`, unless null: whether all were well-formed.
absl::Status CheckHeaderList(absl::string_view input, bool* accepted = nullptr);

// An input of blocks that are well-formed, mostly, and one that is `input` with
// something done to it, bytes or whole fields.
std::string FreshHeaderList(std::minstd_rand& random);
std::string MutateHeaderList(std::minstd_rand& random, absl::string_view input);

// A field in any of its forms, as what a block consists of.
std::string RandomField(std::minstd_rand& random);

}  // namespace attnd::server::http2::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_HEADER_LIST_CHECK_H_
