#include "client/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace attnd::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(TokenTest, AFilesTokenIsWhatStandsInIt) {
  for (const char* text : {"a.b-c", "a.b-c\n", " a.b-c \r\n\n", "\ta.b-c"}) {
    const auto token = TokenIn(text);
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_EQ(*token, "a.b-c");
  }
}

TEST(TokenTest, WhatCannotBeSentIsRefusedAndNotShown) {
  for (const std::string& text :
       {std::string("secret other"), std::string("secret\nother"),
        std::string("secr\x7f"
                    "et"),
        std::string("secr\xc3\xa9t"), std::string("secr\0et", 7),
        std::string("secr\x1b[2J")}) {
    const auto token = TokenIn(text);
    EXPECT_TRUE(absl::IsInvalidArgument(token.status())) << text;
    EXPECT_THAT(std::string(token.status().message()), Not(HasSubstr("secr")));
  }
  EXPECT_THAT(std::string(TokenIn(" \n").status().message()),
              HasSubstr("no token"));
}

TEST(TokenTest, ATokenHasItsLimit) {
  EXPECT_TRUE(CheckToken(std::string(kMaxTokenBytes, 'x')).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      CheckToken(std::string(kMaxTokenBytes + 1, 'x'))));
}

}  // namespace
}  // namespace attnd::client
