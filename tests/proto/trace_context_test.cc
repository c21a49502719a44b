#include "proto/wire/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace attnd::wire {
namespace {

// The example of the standard.
constexpr char kExample[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, ReadsTheStandardsExample) {
  const auto context = ParseTraceparent(kExample);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(TraceIdOf(*context), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(SpanIdOf(*context), "00f067aa0ba902b7");
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(ToTraceparent(*context), kExample);
}

TEST(TraceContextTest, OnlyTheFirstFlagSaysThatItIsRecorded) {
  std::string header = kExample;
  header.replace(53, 2, "fe");
  EXPECT_FALSE(ParseTraceparent(header)->sampled());
}

TEST(TraceContextTest, WhatIsMalformedIsNone) {
  const std::string good = kExample;
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseTraceparent(good.substr(0, size)).has_value()) << size;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char bad : {'g', 'A', ' ', '\0', '\xff'}) {
      std::string header = good;
      header[i] = bad;
      EXPECT_FALSE(ParseTraceparent(header).has_value()) << header;
    }
  }
  std::string no_trace = good, no_span = good;
  no_trace.replace(3, 32, 32, '0');
  no_span.replace(36, 16, 16, '0');
  EXPECT_FALSE(ParseTraceparent(no_trace).has_value());
  EXPECT_FALSE(ParseTraceparent(no_span).has_value());
}

// A later version may say more, behind another dash; version 00 may not, and
// there is no version ff.
TEST(TraceContextTest, LaterVersionsAreReadAsFarAsTheyAreKnown) {
  const std::string rest = std::string(kExample).substr(2);
  EXPECT_TRUE(ParseTraceparent("01" + rest).has_value());
  EXPECT_TRUE(ParseTraceparent("01" + rest + "-more").has_value());
  EXPECT_FALSE(ParseTraceparent("01" + rest + "more").has_value());
  EXPECT_FALSE(ParseTraceparent("00" + rest + "-more").has_value());
  EXPECT_FALSE(ParseTraceparent("ff" + rest).has_value());
}

}  // namespace
}  // namespace attnd::wire
