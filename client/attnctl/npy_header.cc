#include "client/attnctl/npy_header.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

// A cursor over the literal. Each function skips space, and reads one thing or
// nothing.
class Literal {
 public:
  explicit Literal(absl::string_view text) : rest_(text) {}

  bool Read(absl::string_view token) {
    Skip();
    return absl::ConsumePrefix(&rest_, token);
  }

  bool ReadString(absl::string_view& value) {
    Skip();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return false;
    value = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return value.find('\\') == absl::string_view::npos;
  }

  bool ReadInteger(int64_t& value) {
    Skip();
    size_t digits = 0;
    while (digits < rest_.size() && absl::ascii_isdigit(rest_[digits])) {
      ++digits;
    }
    if (!absl::SimpleAtoi(rest_.substr(0, digits), &value)) return false;
    rest_.remove_prefix(digits);
    return true;
  }

  bool ReadBool(bool& value) {
    if (Read("True")) return value = true;
    if (Read("False")) return !(value = false);
    return false;
  }

  // (), (1,), (1, 2), (1, 2,)
  bool ReadTuple(std::vector<int64_t>& values) {
    if (!Read("(")) return false;
    while (!Read(")")) {
      if (values.size() == kMostDimensions) return false;
      if (!ReadInteger(values.emplace_back())) return false;
      if (Read(",")) continue;
      // Without a comma, (1) is not a tuple.
      return values.size() > 1 && Read(")");
    }
    return true;
  }

  bool AtEnd() {
    Skip();
    return rest_.empty();
  }

 private:
  static constexpr size_t kMostDimensions = 32;  // as numpy

  void Skip() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  absl::string_view rest_;
};

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("header: ", what));
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text) {
  Literal literal(text);
  NpyHeader header;
  bool has_descr = false, has_order = false, has_shape = false;
  if (!literal.Read("{")) return Bad("not a dictionary");
  while (!literal.Read("}")) {
    absl::string_view key;
    if (!literal.ReadString(key) || !literal.Read(":")) {
      return Bad("not a dictionary");
    }
    if (key == "descr" && !has_descr) {
      has_descr = true;
      absl::string_view descr;
      if (!literal.ReadString(descr)) {
        return Bad("'descr' is not a string: structured types cannot be read");
      }
      header.descr = std::string(descr);
    } else if (key == "fortran_order" && !has_order) {
      has_order = true;
      if (!literal.ReadBool(header.fortran_order)) {
        return Bad("'fortran_order' is neither True nor False");
      }
    } else if (key == "shape" && !has_shape) {
      has_shape = true;
      if (!literal.ReadTuple(header.shape)) {
        return Bad("'shape' is not a tuple of at most 32 sizes");
      }
    } else {
      return Bad(
          absl::StrCat("key '", wire::Echo(key), "' is unknown or twice"));
    }
    if (!literal.Read(",")) {
      if (literal.Read("}")) break;
      return Bad("not a dictionary");
    }
  }
  if (!literal.AtEnd()) return Bad("text after the dictionary");
  if (!has_descr || !has_order || !has_shape) {
    return Bad("'descr', 'fortran_order' and 'shape' are needed");
  }
  return header;
}

}  // namespace attnd::client
