#include "server/front/stream_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

TEST(StreamLimits, AClientHasItsOwnAndLeavesOthersTheirs) {
  StreamLimits limits("watches", 3, 2);
  const auto first = limits.Enter("a");
  const auto second = limits.Enter("a");
  EXPECT_TRUE(first.ok() && second.ok());
  const absl::Status third = limits.Enter("a").status();
  EXPECT_TRUE(absl::IsResourceExhausted(third)) << third;
  EXPECT_THAT(std::string(third.message()), HasSubstr("watches"));
  EXPECT_TRUE(limits.Enter("b").ok());
}

TEST(StreamLimits, AllClientsTogetherHaveAsManyAsThereMayBe) {
  StreamLimits limits("watches", 3, 2);
  std::vector<StreamLimits::Place> places;
  for (const char* client : {"a", "b", "c"}) {
    auto place = limits.Enter(client);
    ASSERT_TRUE(place.ok()) << place.status();
    places.push_back(*std::move(place));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(limits.Enter("d").status()));
}

TEST(StreamLimits, APlaceIsGivenBackOnce) {
  StreamLimits limits("watches", 1, 1);
  for (int i = 0; i < 3; ++i) {
    auto place = limits.Enter("a");
    ASSERT_TRUE(place.ok()) << place.status();
    const std::optional<StreamLimits::Place> moved(*std::move(place));
    EXPECT_FALSE(limits.Enter("a").ok());
  }
  EXPECT_TRUE(limits.Enter("a").ok());
}

}  // namespace
}  // namespace attnd::server
