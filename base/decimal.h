#ifndef ATTND_BASE_DECIMAL_H_
#define ATTND_BASE_DECIMAL_H_

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace attnd {

// Reads a real number, infinities and NaN included, as absl::SimpleAtod does,
// but for hexadecimal ones: no number that a user writes is one. Whole numbers
// are for absl::SimpleAtoi, which knows decimal only.
inline bool ParseDecimal(absl::string_view text, double* value) {
  return text.find_first_of("xX") == absl::string_view::npos &&
         absl::SimpleAtod(text, value);
}

}  // namespace attnd

#endif  // ATTND_BASE_DECIMAL_H_
