#include "client/attnload/shape.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace attnd::attnload {
namespace {

TEST(Shape, ReadsEveryPartInAnyOrder) {
  const auto shape = ParseShape(
      "causal:d192/128:backward:bf16:h8/2:b4:s1/512:w256/0:fa1:det@0.7");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_TRUE(shape->backward);
  EXPECT_EQ(shape->dtype, client::DType::kBF16);
  EXPECT_EQ(shape->batch, 4);
  EXPECT_EQ(shape->q_len, 1);
  EXPECT_EQ(shape->kv_len, 512);
  EXPECT_EQ(shape->q_heads, 8);
  EXPECT_EQ(shape->kv_heads, 2);
  EXPECT_EQ(shape->head_dim, 192);
  EXPECT_EQ(shape->value_dim, 128);
  EXPECT_TRUE(shape->mask.causal);
  EXPECT_EQ(shape->mask.window_left, 256);
  EXPECT_EQ(shape->mask.window_right, 0);
  EXPECT_EQ(shape->algorithm, client::Algorithm::kFlashAttention1);
  EXPECT_TRUE(shape->deterministic);
  EXPECT_EQ(shape->weight, 0.7);
  EXPECT_EQ(shape->name,
            "causal:d192/128:backward:bf16:h8/2:b4:s1/512:w256/0:fa1:det");
}

TEST(Shape, ReadsAPlan) {
  for (const client::Plan plan :
       {client::Plan::kOneDevice, client::Plan::kHeads, client::Plan::kGather,
        client::Plan::kRing, client::Plan::kStriped, client::Plan::kZigzag,
        client::Plan::kKv}) {
    const auto shape = ParseShape(absl::StrCat("s64:", Name(plan), ":h4"));
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_EQ(shape->plan, plan);
  }
  EXPECT_EQ(ParseShape("s64")->plan, client::Plan::kAuto);
}

TEST(Shape, CountsTheBytesThatTravel) {
  const auto forward = ParseShape("f16:b1:s2/3:h4/2:d8/16");
  EXPECT_EQ(forward->input_bytes(), 2 * (2 * 4 * 8 + 3 * 2 * 8 + 3 * 2 * 16));
  EXPECT_EQ(forward->output_bytes(), 2 * (2 * 4 * 16) + 4 * (4 * 2));
  const auto backward = ParseShape("backward:f16:b1:s2/3:h4/2:d8/16");
  EXPECT_EQ(backward->input_bytes(),
            forward->input_bytes() + 2 * 2 * (2 * 4 * 16) + 4 * (4 * 2));
  EXPECT_EQ(backward->output_bytes(), forward->input_bytes());
}

TEST(Shape, RefusesWhatMakesNoSense) {
  for (const char* text : {"",
                           "sideways",
                           "b0",
                           "s-1",
                           "s1/2/3",
                           "s",
                           "h8/3",
                           "d",
                           "b1:b2",
                           "forward:backward",
                           "f32:bf16",
                           "naive:fa2",
                           "heads:gather",
                           "unknown",
                           "w-2",
                           "b1@0",
                           "b1@x",
                           "b1@",
                           "b1@-1",
                           "b1@inf",
                           "b1::s2",
                           "b9000000000000000000:s2:h8:d64",
                           "b99999999999999999999"}) {
    const auto shape = ParseShape(text);
    EXPECT_EQ(shape.status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(Mix, HasAShapeALineAndComments) {
  const auto mix =
      ParseMix("# decode\nforward:bf16:s1/512@3\n\n  backward:s64  # train\n");
  ASSERT_TRUE(mix.ok()) << mix.status();
  ASSERT_EQ(mix->size(), 2);
  EXPECT_EQ((*mix)[0].weight, 3);
  EXPECT_TRUE((*mix)[1].backward);
}

TEST(Mix, IsNotEmptyAndNamesTheBadLine) {
  EXPECT_FALSE(ParseMix("# nothing\n").ok());
  EXPECT_NE(
      std::string(ParseMix("b1\nb2:oops\n").status().message()).find("oops"),
      std::string::npos);
}

}  // namespace
}  // namespace attnd::attnload
