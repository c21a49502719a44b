// No field of a request is ignored. Every declared one, at every depth, has a
// row in field_uses.cc that shows what it changes: whoever adds one to the
// schema says so there, or this fails. Every number that is not declared is
// refused by name. What only an Exchange has is in
// tests/integration/exchange_fields_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/proto/routes.h"
#include "tests/server/field_uses.h"

namespace attnd::testing {
namespace {

using ::testing::IsEmpty;
using wire::testing::FieldPaths;
using wire::testing::Route;
using wire::testing::Routes;
using wire::testing::SetUndeclared;
using wire::testing::Undeclared;
using wire::testing::WithField;

constexpr Op kOps[] = {Op::kForward, Op::kBackward};

std::set<std::string> PathsOf(const std::vector<FieldUse>& uses) {
  std::set<std::string> paths;
  for (const FieldUse& use : uses) {
    EXPECT_TRUE(paths.insert(use.path).second) << use.path << " twice";
  }
  return paths;
}

void ExpectUsed(const FieldUse& use, Aspects before, Aspects after) {
  SCOPED_TRACE(use.path);
  EXPECT_EQ(before["status"], "OK");
  EXPECT_NE(before[use.aspect], use.becomes);
  EXPECT_EQ(after[use.aspect], use.becomes);
}

TEST(RequestFields, EveryFieldOfAUnaryCallIsUsed) {
  for (Op op : kOps) {
    SCOPED_TRACE(TypeOf(op).name());
    const std::vector<FieldUse> uses = UsesOf(op);
    const std::set<std::string> fields = FieldPaths(TypeOf(op));
    EXPECT_THAT(OnlyIn(fields, PathsOf(uses)), IsEmpty()) << "not in the table";
    EXPECT_THAT(OnlyIn(PathsOf(uses), fields), IsEmpty()) << "no such fields";
    for (const FieldUse& use : uses) {
      const auto base = BaseOf(op, use);
      ExpectUsed(
          use, DecodeUnary(op, base->SerializeAsString()),
          DecodeUnary(
              op, WithField(*base, use.path, use.change)->SerializeAsString()));
    }
  }
}

TEST(RequestFields, EveryFieldOfACallInAHeaderIsUsed) {
  for (Op op : kOps) {
    SCOPED_TRACE(TypeOf(op).name());
    for (FieldUse use : UsesOf(op)) {
      if (absl::EndsWith(use.path, ".streamed")) {  // what is refused elsewhere
        use.aspect = use.path;
        use.becomes = "1";
      }
      const auto base = BaseOf(op, use);
      ExpectUsed(use, DecodeExchanged(*base),
                 DecodeExchanged(*WithField(*base, use.path, use.change)));
    }
  }
}

TEST(RequestFields, UnaryCallsRefuseEveryOtherNumberAtEveryDepth) {
  for (Op op : kOps) {
    SCOPED_TRACE(TypeOf(op).name());
    for (const Route& route : Routes(TypeOf(op))) {
      for (int number : Undeclared(TypeOf(op), route)) {
        const auto message = BaseOf(op, {});
        const std::string path = SetUndeclared(route, number, *message);
        EXPECT_EQ(DecodeUnary(op, message->SerializeAsString())["status"],
                  absl::StrCat("UNIMPLEMENTED ", path));
      }
    }
  }
}

}  // namespace
}  // namespace attnd::testing
