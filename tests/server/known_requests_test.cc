#include "server/front/known_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/request.h"

namespace attnd::server {
namespace {

// One of that many queries.
std::shared_ptr<const Request> MakeRequest(int64_t q_len) {
  RequestSpec spec;
  spec.inputs[TensorId::kQ] = {DType::kF32, {1, q_len, 1, 8}};
  spec.inputs[TensorId::kK] =
      spec.inputs[TensorId::kV] = {DType::kF32, {1, 5, 1, 8}};
  spec.outputs[TensorId::kO].want = true;
  return *Request::Create(std::move(spec));
}

KnownRequests::Entry MakeEntry(int64_t q_len, const std::string& id) {
  return {MakeRequest(q_len),
          Priority::kHigh,
          {{TensorId::kQ, /*is_output=*/false, &id, 256},
           {TensorId::kO, /*is_output=*/true, &id, 512}}};
}

TEST(KnownRequestsTest, KnowsWhatHasComeTwice) {
  KnownRequests known;
  const KnownRequests::Entry* found = nullptr;
  {
    std::string message = "a message", id = "an id that lives in the message";
    const KnownRequests::Entry entry = MakeEntry(3, id);
    EXPECT_EQ(known.Find(Op::kForward, message), nullptr);
    known.Add(Op::kForward, message, entry);
    EXPECT_EQ(known.Find(Op::kForward, message), nullptr);
    known.Add(Op::kForward, message, entry);
    message.assign(message.size(), '?');
    id.assign(id.size(), '?');
    found = known.Find(Op::kForward, "a message");
  }
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->request->sizes().q_len, 3);
  EXPECT_EQ(found->priority, Priority::kHigh);
  ASSERT_EQ(found->slices.size(), 2);
  EXPECT_EQ(found->slices[0].tensor, TensorId::kQ);
  EXPECT_FALSE(found->slices[0].is_output);
  EXPECT_EQ(found->slices[0].offset, 256);
  EXPECT_EQ(*found->slices[0].region, "an id that lives in the message");
  EXPECT_TRUE(found->slices[1].is_output);
  EXPECT_EQ(*found->slices[1].region, "an id that lives in the message");
}

TEST(KnownRequestsTest, TellsMessagesAndOperationsApart) {
  KnownRequests known;
  const std::string id = "id";
  for (int i = 0; i < 2; ++i) {
    known.Add(Op::kForward, "message", MakeEntry(3, id));
  }
  EXPECT_NE(known.Find(Op::kForward, "message"), nullptr);
  EXPECT_EQ(known.Find(Op::kBackward, "message"), nullptr);
  EXPECT_EQ(known.Find(Op::kForward, "Message"), nullptr);
  EXPECT_EQ(known.Find(Op::kForward, "messag"), nullptr);
  EXPECT_EQ(known.Find(Op::kForward, ""), nullptr);
}

TEST(KnownRequestsTest, ForgetsTheOldestAndKeepsNoLongOnes) {
  KnownRequests known;
  const std::string id = "id";
  const auto name = [](size_t i) { return absl::StrCat("message ", i); };
  for (size_t i = 0; i <= KnownRequests::kMost; ++i) {
    for (int j = 0; j < 2; ++j) {
      known.Add(Op::kForward, name(i), MakeEntry(int64_t(i) + 1, id));
    }
  }
  EXPECT_EQ(known.Find(Op::kForward, name(0)), nullptr);
  for (size_t i = 1; i <= KnownRequests::kMost; ++i) {
    const auto* found = known.Find(Op::kForward, name(i));
    ASSERT_NE(found, nullptr) << i;
    EXPECT_EQ(found->request->sizes().q_len, int64_t(i) + 1);
    EXPECT_EQ(*found->slices[0].region, "id");
  }
  const std::string longest(KnownRequests::kLongest, 'x');
  for (const std::string& message : {longest, longest + "x"}) {
    for (int i = 0; i < 2; ++i) {
      known.Add(Op::kForward, message, MakeEntry(1, id));
    }
  }
  EXPECT_NE(known.Find(Op::kForward, longest), nullptr);
  EXPECT_EQ(known.Find(Op::kForward, longest + "x"), nullptr);
}

TEST(KnownRequestsTest, WhatComesOnceTakesNobodysPlace) {
  KnownRequests known;
  const std::string id = "id";
  for (int i = 0; i < 2; ++i) known.Add(Op::kForward, "m", MakeEntry(1, id));
  for (int i = 0; i < 1000; ++i) {
    known.Add(Op::kForward, absl::StrCat("other ", i), MakeEntry(2, id));
  }
  EXPECT_NE(known.Find(Op::kForward, "m"), nullptr);
}

}  // namespace
}  // namespace attnd::server
