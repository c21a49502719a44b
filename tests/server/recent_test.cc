#include "server/work/recent.h"

#include "gtest/gtest.h"

namespace attnd::server {
namespace {

TEST(Recent, RemembersWhatItWasTold) {
  Recent<int> recent(2);
  EXPECT_EQ(recent.Find("a"), nullptr);
  recent.Set("a", 1);
  recent.Set("a", 2);
  ASSERT_NE(recent.Find("a"), nullptr);
  EXPECT_EQ(*recent.Find("a"), 2);
}

TEST(Recent, ForgetsWhatWasUsedLongestAgo) {
  Recent<int> recent(2);
  recent.Set("a", 1);
  recent.Set("b", 2);
  recent.Find("a");
  recent.Set("c", 3);
  EXPECT_NE(recent.Find("a"), nullptr);
  EXPECT_EQ(recent.Find("b"), nullptr);
  EXPECT_NE(recent.Find("c"), nullptr);
}

}  // namespace
}  // namespace attnd::server
