#include <iterator>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/fuzz/corpus.h"
#include "tests/server/fuzz/token_lines_check.h"
#include "tests/server/token_testing.h"

namespace attnd::server {
namespace {

// Of a good file, most of the time.
std::string FreshLines(std::mt19937_64& random) {
  const std::string limits[] = {
      "rate=1e3",          "rate=0",     "queued_bytes=7MiB", "queued_bytes=12",
      "queued_flops=1e13", "shares=0.5", "priority=high",     "priority=low"};
  std::string text;
  for (int n = random() % 4; n >= 0; --n) {
    if (random() % 4 == 0) text += "# comment\n";
    absl::StrAppend(&text, "name", random() % 5, " ",
                    HashWord(absl::StrCat(random() % 50)));
    for (int m = random() % 3; m > 0; --m) {
      absl::StrAppend(&text, " ", limits[random() % std::size(limits)]);
    }
    text += "\n";
  }
  return text;
}

std::string Mutated(std::mt19937_64& random, std::string text,
                    const std::string& other) {
  const size_t at = text.empty() ? 0 : random() % text.size();
  switch (random() % 6) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(random());
      break;
    case 1:
      text.insert(at, 1, "\n \t#=:.0aG\r"[random() % 11]);
      break;
    case 2:
      text.erase(at, random() % 9);
      break;
    case 3:
      text.insert(at, other, random() % other.size(), random() % 80);
      break;
    case 4:
      text.resize(at);
      break;
    default:
      text += other;
  }
  return text;
}

TEST(TokenLinesFuzz, MutatedFilesAreTakenWholeOrNotAtAll) {
  constexpr int kInputs = 50'000;
  std::mt19937_64 random(testing::FuzzSeed());
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string text = FreshLines(random);
    for (int n = random() % 4; n > 0; --n) {
      text = Mutated(random, std::move(text), FreshLines(random));
    }
    bool good = false;
    const absl::Status status = CheckTokenLines(text, &good);
    ASSERT_TRUE(status.ok()) << status << "\n" << text;
    accepted += good;
  }
  EXPECT_GT(accepted, kInputs / 50);
  EXPECT_LT(accepted, kInputs * 49 / 50);
}

TEST(TokenLinesFuzz, TheCorpusStillPasses) {
  const auto corpus = testing::Corpus("token_lines");
  EXPECT_GE(corpus.size(), 6);
  for (const auto& [name, text] : corpus) {
    EXPECT_EQ(CheckTokenLines(text), absl::OkStatus()) << name;
  }
}

}  // namespace
}  // namespace attnd::server
