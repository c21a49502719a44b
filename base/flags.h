#ifndef ATTND_BASE_FLAGS_H_
#define ATTND_BASE_FLAGS_H_

// How every program of this tree reads its flags.

#include <set>
#include <string>

#include "CLI/CLI.hpp"

namespace attnd {

// Parses as `app.parse(argc, argv)` does, except for what CLI11 2.1 makes of
// values that are missing and of numbers:
//
// - `--flag=` has an empty value, and so has `--flag ""`. CLI11 takes the next
//   argument for it, which may be a flag. Empty values are refused, but for
//   the flags in `may_be_empty` ("--flag").
// - The value of `--flag` is not the next argument where that begins with
//   "--": it was forgotten, and a flag follows. `--flag=--value` is a value.
// - Numbers are decimal. CLI11 reads 010 as eight and 0x10 as sixteen; here
//   010 is ten, 0x10 is refused, and so is a whole number beyond 64 bits, which
//   CLI11 cuts. Counts of bytes, "64MiB", are options of the type "BYTES".
//
// `app` has all of its options by now and a name of its own. It is parsed once.
// Throws CLI::ParseError; what it says names the flag.
void ParseFlags(CLI::App& app, int argc, const char* const* argv,
                const std::set<std::string>& may_be_empty = {});

}  // namespace attnd

#endif  // ATTND_BASE_FLAGS_H_
