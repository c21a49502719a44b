#include "client/attnload/range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnd::attnload {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST(Range, GivesOneLevelOrTheListedOnes) {
  EXPECT_THAT(*ParseRange("8"), ElementsAre(8));
  EXPECT_THAT(*ParseRange("1,4,32"), ElementsAre(1, 4, 32));
  EXPECT_THAT(*ParseRange("0.5"), ElementsAre(0.5));
}

TEST(Range, StepsByADifferenceUpToItsEnd) {
  EXPECT_THAT(*ParseRange("100:400:100"), ElementsAre(100, 200, 300, 400));
  EXPECT_THAT(*ParseRange("1:8:3"), ElementsAre(1, 4, 7));
  EXPECT_EQ(ParseRange("0.1:1:0.1")->size(), 10);
}

TEST(Range, StepsByAFactorUpToItsEnd) {
  EXPECT_THAT(*ParseRange("1:16:*2"),
              Pointwise(DoubleEq(), {1.0, 2.0, 4.0, 8.0, 16.0}));
  EXPECT_THAT(*ParseRange("3:20:*2"), Pointwise(DoubleEq(), {3.0, 6.0, 12.0}));
}

TEST(Range, RefusesWhatIsNoRange) {
  for (const char* text :
       {"", "x", "0", "-1", "nan", "inf", "1,", "1:2", "1:2:3:4", "2:1:1",
        "1:2:0", "1:2:-1", "1:2:*1", "1:2:*0.5", "1:1e9:1", "1:2:**2"}) {
    const auto range = ParseRange(text);
    EXPECT_EQ(range.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace attnd::attnload
