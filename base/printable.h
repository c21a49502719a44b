#ifndef ATTND_BASE_PRINTABLE_H_
#define ATTND_BASE_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnd {

struct PrintableOptions {
  // So that what was escaped can be told from a text that looks like it.
  bool escape_backslash = false;
  // What goes on after so many bytes of output ends in "..." there.
  size_t max_bytes = std::string::npos;
};

// Somebody else's text as a terminal or a log may show it: what is not
// printable ASCII becomes \x1b and the like, so that nobody moves a cursor,
// renames a window or writes a line that looks like ours.
inline std::string Printable(absl::string_view text,
                             PrintableOptions options = {}) {
  std::string printable;
  for (const char c : text) {
    if (printable.size() >= options.max_bytes) return printable + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isprint(byte) && !(options.escape_backslash && c == '\\')) {
      printable.push_back(c);
    } else {
      absl::StrAppend(&printable, "\\x", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return printable;
}

}  // namespace attnd

#endif  // ATTND_BASE_PRINTABLE_H_
