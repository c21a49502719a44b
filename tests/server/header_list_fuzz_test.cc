// Sizes of header lists against a whole decoder, on blocks that are well-formed
// and not. Other blocks in every round:
//   http2_test --gtest_filter='*Fuzz*' --gtest_shuffle --gtest_repeat=ROUNDS

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/server/fuzz/corpus.h"
#include "tests/server/fuzz/header_list_check.h"

namespace attnd::server::http2::testing {
namespace {

using attnd::server::testing::FuzzSeed;

TEST(HeaderListFuzz, BlocksHaveTheSizesThatADecoderFinds) {
  constexpr int kInputs = 30'000;
  std::minstd_rand random(FuzzSeed());
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string input = FreshHeaderList(random);
    for (int n = random() % 4; n > 0; --n) {
      input = MutateHeaderList(random, input);
    }
    bool good = false;
    const absl::Status status = CheckHeaderList(input, &good);
    ASSERT_TRUE(status.ok()) << status;
    accepted += good;
  }
  // Both outcomes are being compared, not one.
  EXPECT_GT(accepted, kInputs / 50);
  EXPECT_LT(accepted, kInputs * 49 / 50);
}

TEST(HeaderListFuzz, TheCorpusStillPasses) {
  const auto corpus = attnd::server::testing::Corpus("header_list");
  EXPECT_GE(corpus.size(), 10);
  for (const auto& [name, input] : corpus) {
    EXPECT_EQ(CheckHeaderList(input), absl::OkStatus()) << name;
  }
}

}  // namespace
}  // namespace attnd::server::http2::testing
