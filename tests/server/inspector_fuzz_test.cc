// What an inspector lets through, on connections that are drawn at random.
// Others in every round:
//   http2_test --gtest_filter='*Fuzz*' --gtest_shuffle --gtest_repeat=ROUNDS

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/server/fuzz/corpus.h"
#include "tests/server/fuzz/inspector_check.h"
#include "tests/server/fuzz/inspector_script.h"

namespace attnd::server::http2::testing {
namespace {

using attnd::server::testing::FuzzSeed;

TEST(InspectorFuzz, ConnectionsKeepToTheRulesHoweverTheyAreCut) {
  constexpr int kInputs = 20'000;
  std::minstd_rand random(FuzzSeed());
  int violations = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string input = FreshScript(random);
    for (int n = random() % 4; n > 0; --n) input = MutateScript(random, input);
    bool violated = false;
    const absl::Status status = CheckInspector(input, &violated);
    ASSERT_TRUE(status.ok()) << status;
    violations += violated;
  }
  EXPECT_GT(violations, kInputs / 50);
  EXPECT_LT(violations, kInputs * 49 / 50);
}

TEST(InspectorFuzz, TheCorpusStillPasses) {
  const auto corpus = attnd::server::testing::Corpus("inspector");
  EXPECT_GE(corpus.size(), 10);
  for (const auto& [name, input] : corpus) {
    EXPECT_EQ(CheckInspector(input), absl::OkStatus()) << name;
  }
}

}  // namespace
}  // namespace attnd::server::http2::testing
