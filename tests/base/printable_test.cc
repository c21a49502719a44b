#include "base/printable.h"

#include "gtest/gtest.h"

namespace attnd {
namespace {

TEST(Printable, EscapesWhatIsNotPrintableAscii) {
  EXPECT_EQ(Printable("plain, text~ \\x41"), "plain, text~ \\x41");
  EXPECT_EQ(Printable("a\n\x1b[2J\x7f\xff"), "a\\x0a\\x1b[2J\\x7f\\xff");
  EXPECT_EQ(Printable(absl::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(Printable(""), "");
}

TEST(Printable, EscapesBackslashesWhereAsked) {
  EXPECT_EQ(Printable("\\x41", {.escape_backslash = true}), "\\x5cx41");
}

TEST(Printable, EndsWhereTheOutputIsFull) {
  EXPECT_EQ(Printable("abcd", {.max_bytes = 4}), "abcd");
  EXPECT_EQ(Printable("abcde", {.max_bytes = 4}), "abcd...");
  EXPECT_EQ(Printable("abc\nd", {.max_bytes = 4}), "abc\\x0a...");
}

}  // namespace
}  // namespace attnd
