#include "server/admin/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace attnd::server {
namespace {

TEST(Json, IsIndentedInTheOrderOfTheCalls) {
  JsonWriter json;
  json.Add("name", "x");
  json.Object("of");
  json.Add("count", 3);
  json.Array("flags");
  json.Add("", true);
  json.Add("", false);
  json.Close();
  json.Close();
  json.Array("none");
  json.Close();
  json.Add("last", std::numeric_limits<int64_t>::min());
  EXPECT_EQ(json.Take(),
            "{\n"
            "  \"name\": \"x\",\n"
            "  \"of\": {\n"
            "    \"count\": 3,\n"
            "    \"flags\": [\n"
            "      true,\n"
            "      false\n"
            "    ]\n"
            "  },\n"
            "  \"none\": [],\n"
            "  \"last\": -9223372036854775808\n"
            "}\n");
}

TEST(Json, TextIsEscaped) {
  JsonWriter json;
  json.Add("a\"b", "\\ \n\x01 \xc3\xa9");
  EXPECT_EQ(json.Take(),
            "{\n  \"a\\\"b\": \"\\\\ \\u000a\\u0001 \xc3\xa9\"\n}\n");
}

TEST(Json, NumbersAreJsons) {
  JsonWriter json;
  json.Add("large", 1e15);
  json.Add("half", 0.5);
  json.Add("no number", std::nan(""));
  json.Add("infinite", HUGE_VAL);
  EXPECT_EQ(json.Take(),
            "{\n  \"large\": 1e+15,\n  \"half\": 0.5,\n"
            "  \"no number\": null,\n  \"infinite\": null\n}\n");
}

}  // namespace
}  // namespace attnd::server
