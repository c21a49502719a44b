#include "server/identity/token_lines.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/token_testing.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Line(absl::string_view name, absl::string_view token,
                 absl::string_view rest = "") {
  return absl::StrCat(name, " ", HashWord(token), rest, "\n");
}

// Why `text` is refused.
std::string Refusal(absl::string_view text) {
  const absl::Status status = ParseTokens(text).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(TokenSet, HashesAsSha256sumDoes) {
  EXPECT_EQ(HashWord("abc"),
            "sha256:ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
}

TEST(TokenLines, NamesTokensAndLimits) {
  const auto tokens = ParseTokens(absl::StrCat(
      "# Who may call: \xc3\xa4\n\n  \t\n", Line("alice", "a"),
      Line("\t b-2._X", "b", "\trate=0.5  queued_bytes=3GiB queued_flops=1e13"),
      Line("c", "c", " shares=2 priority=low"), "d sha256:",
      absl::AsciiStrToUpper(HashWord("d").substr(7)), " priority=high\n"));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->tokens(), 4);
  NamedIdentity alice;
  alice.name = "alice";
  ASSERT_NE(tokens->Find("a"), nullptr);
  EXPECT_EQ(*tokens->Find("a"), alice);
  const NamedIdentity* b = tokens->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->name, "b-2._X");
  EXPECT_EQ(b->calls_per_second, 0.5);
  EXPECT_EQ(b->queue_bytes, int64_t{3} << 30);
  EXPECT_EQ(b->queue_flops, 1e13);
  EXPECT_EQ(tokens->Find("c")->shares, 2);
  EXPECT_EQ(tokens->Find("c")->most_priority, Priority::kLow);
  EXPECT_EQ(tokens->Find("d")->most_priority, Priority::kHigh);
  EXPECT_EQ(tokens->Find("e"), nullptr);
  EXPECT_EQ(tokens->Find(""), nullptr);
}

TEST(TokenLines, ANameMayHaveTwoTokensWhileItChangesThem) {
  const auto tokens = ParseTokens(
      absl::StrCat(Line("a", "old", " shares=2"), Line("a", "new")));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_NE(tokens->Find("new"), nullptr);
  EXPECT_EQ(tokens->Find("new"), tokens->Find("old"));
  EXPECT_EQ(tokens->Find("new")->shares, 2);
  EXPECT_EQ(tokens->identities().size(), 1);
}

TEST(TokenLines, RefusesWhatIsNotALine) {
  const std::string good = Line("good", "good");
  const std::string hash = HashWord("x");
  const auto refused = [&](absl::string_view line) {
    return Refusal(absl::StrCat(good, "# comment\n", line));
  };
  const auto wrong = [](absl::string_view what) {
    return StartsWith(absl::StrCat("3: ", what));
  };
  for (const std::string& name :
       {std::string("na/me"), std::string("token:a"), std::string(65, 'a'),
        std::string("a=b"), std::string("\"a\"")}) {
    EXPECT_THAT(refused(Line(name, "x")), wrong("begins with a name"));
  }
  for (const std::string& word :
       {std::string(""), std::string("secret"), std::string("sha256:"),
        hash.substr(0, 70), hash + "0", hash.substr(7),
        "SHA256:" + hash.substr(7), "sha512:" + hash.substr(7),
        hash.substr(0, 70) + "g", "rate=1 " + hash}) {
    EXPECT_THAT(refused(absl::StrCat("x ", word, "\n")),
                wrong("the second word is sha256:"))
        << word;
  }
  for (const std::string rest :
       {"rate", "Rate=1", "=1", "-", "rates=1", "secret", "# comment"}) {
    EXPECT_THAT(refused(Line("x", "x", " " + rest)),
                wrong("what follows the hash"))
        << rest;
  }
  EXPECT_THAT(refused(Line("x", "")), wrong("the hash is that of an empty"));
  EXPECT_THAT(refused(Line("x", "good")),
              wrong("an earlier line has the same"));
  EXPECT_THAT(refused(Line("good", "good")),
              wrong("an earlier line has the same hash"));
  EXPECT_THAT(refused(Line("good", "x", " rate=1")),
              wrong("an earlier line has the same name"));
  EXPECT_THAT(refused(Line("x", "x", " rate=1 shares=2 rate=1")),
              wrong("a limit is given twice"));
  for (const std::string text : {"\r", "\x01", "\x7f", "\xc3\xa4"}) {
    EXPECT_THAT(refused(absl::StrCat("x ", hash, text, "\n")),
                wrong("has a character"));
  }
  EXPECT_THAT(refused(absl::StrCat("x", std::string(1, '\0'), " ", hash, "\n")),
              wrong("has a character"));
  EXPECT_THAT(refused(absl::StrCat("x ", hash)), wrong("does not end with"));
  EXPECT_THAT(refused("# torn"), wrong("does not end with"));
}

TEST(TokenLines, RefusesLimitsThatMakeNoSense) {
  for (const std::string limit : {"rate=",
                                  "rate=x",
                                  "rate=-1",
                                  "rate=nan",
                                  "rate=inf",
                                  "rate=0x10",
                                  "rate=1e10",
                                  "rate=1,5",
                                  "rate=1e999",
                                  "queued_bytes=",
                                  "queued_bytes=-1",
                                  "queued_bytes=1.5GiB",
                                  "queued_bytes=1G",
                                  "queued_bytes=GiB",
                                  "queued_bytes=1gib",
                                  "queued_bytes=9223372036854775808",
                                  "queued_bytes=1025TiB",
                                  "queued_bytes=9007199254740993TiB",
                                  "queued_flops=",
                                  "queued_flops=-1",
                                  "queued_flops=1e31",
                                  "shares=",
                                  "shares=0",
                                  "shares=-1",
                                  "shares=0.001",
                                  "shares=101",
                                  "priority=",
                                  "priority=HIGH",
                                  "priority=urgent"}) {
    const std::string key = limit.substr(0, limit.find('=') + 1);
    EXPECT_THAT(Refusal(Line("x", "x", " " + limit)),
                StartsWith("1: " + key + " takes"))
        << limit;
  }
}

TEST(TokenLines, RepeatsNothingOfTheLine) {
  for (const std::string& line :
       {std::string("hunter2 hunter2\n"), std::string("x hunter2\n"),
        Line("x", "x", " hunter2"), Line("x", "x", " rate=hunter2"),
        Line("x", "x", " priority=hunter2"), std::string("hunter2")}) {
    EXPECT_THAT(Refusal(line), Not(HasSubstr("hunter2")));
  }
  const std::string twice = Line("x", "x") + Line("y", "x");
  EXPECT_THAT(Refusal(twice), Not(HasSubstr(HashWord("x").substr(7, 8))));
}

TEST(TokenLines, OneWithoutATokenIsTorn) {
  EXPECT_THAT(Refusal(""), HasSubstr("has a token"));
  EXPECT_THAT(Refusal("# nobody\n\n"), HasSubstr("has a token"));
}

TEST(TokenLines, HoldsAThousandTokensAndNoMore) {
  std::string text;
  for (int64_t i = 0; i < kMostTokens; ++i) {
    text += Line(absl::StrCat("n", i), absl::StrCat("t", i));
  }
  const auto tokens = ParseTokens(text);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  for (int64_t i = 0; i < kMostTokens; i += 93) {
    ASSERT_NE(tokens->Find(absl::StrCat("t", i)), nullptr);
    EXPECT_EQ(tokens->Find(absl::StrCat("t", i))->name, absl::StrCat("n", i));
  }
  EXPECT_THAT(Refusal(text + Line("one", "more")),
              HasSubstr("more than 1024 tokens"));
}

}  // namespace
}  // namespace attnd::server
