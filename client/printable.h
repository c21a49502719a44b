#ifndef ATTND_CLIENT_PRINTABLE_H_
#define ATTND_CLIENT_PRINTABLE_H_

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnd::client {

// A server's text as a terminal may show it: what is not printable ASCII
// becomes \x1b and the like, so that no server moves a cursor, renames a
// window or writes a line that looks like ours.
inline std::string Printable(absl::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isprint(byte)) {
      printable.push_back(c);
    } else {
      absl::StrAppend(&printable, "\\x", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return printable;
}

}  // namespace attnd::client

#endif  // ATTND_CLIENT_PRINTABLE_H_
