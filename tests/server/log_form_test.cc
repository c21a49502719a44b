#include "server/telemetry/log_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

using nlohmann::json;
using ::testing::EndsWith;

constexpr auto kText = LogOptions::Format::kText;
constexpr auto kJson = LogOptions::Format::kJson;

std::string EveryByte() {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  return all;
}

json Parsed(const LogLine& line) {
  return json::parse(absl::StrCat("{", LineText(line, kJson), "}"));
}

TEST(PrintableTest, EveryByteIsPrintedOrEscaped) {
  const std::string line = Printable(EveryByte());
  for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << int{c};
  EXPECT_EQ(Printable("a\nb\r\x1b[31m\x7f\x80\xff\0"),
            "a\\x0ab\\x0d\\x1b[31m"
            "\\x7f\\x80\\xff");
  // No text looks like an escaped one.
  EXPECT_EQ(Printable("\\x0a"), "\\x5cx0a");
  EXPECT_EQ(Printable(std::string(1, '\0')), "\\x00");
}

TEST(PrintableTest, ALongLineIsCut) {
  EXPECT_EQ(Printable(std::string(kMaxLineBytes, 'a')).size(), kMaxLineBytes);
  const std::string cut = Printable(std::string(1 << 20, '\n'));
  EXPECT_LE(cut.size(), kMaxLineBytes + 7);
  EXPECT_THAT(cut, EndsWith("..."));
}

TEST(LineTextTest, FieldsFollowTheMessage) {
  const LogLine line{LogLevel::kInfo,
                     "ended",
                     {{"code", "OK"},
                      {"why", "two words"},
                      {"quoted", "a\"b"},
                      {"empty", ""},
                      {"assigned", "a=b"},
                      {"bytes", int64_t{-7}},
                      {"ms", 1.5}}};
  EXPECT_EQ(LineText(line, kText),
            "ended code=OK why=\"two words\" quoted=\"a\\x22b\" empty=\"\" "
            "assigned=\"a=b\" bytes=-7 ms=1.5");
  const json parsed = Parsed(line);
  EXPECT_EQ(parsed["message"], "ended");
  EXPECT_EQ(parsed["why"], "two words");
  EXPECT_EQ(parsed["quoted"], "a\"b");
  EXPECT_EQ(parsed["bytes"], -7);
  EXPECT_EQ(parsed["ms"], 1.5);
}

// Whoever chooses a text makes neither a second line nor a field of its own.
TEST(LineTextTest, NoTextLeavesItsPlace) {
  const LogLine line{LogLevel::kInfo, EveryByte(), {{"name", EveryByte()}}};
  for (const auto format : {kText, kJson}) {
    const std::string text = LineText(line, format);
    for (const char c : text) EXPECT_TRUE(absl::ascii_isprint(c)) << int{c};
  }
  EXPECT_EQ(Parsed(line).size(), 2);
  EXPECT_EQ(LineText({LogLevel::kInfo, "m", {{"name", "a b=\" c=d"}}}, kText),
            "m name=\"a b=\\x22 c=d\"");
  EXPECT_EQ(LineText({LogLevel::kInfo, "m code=OK", {{"a", "b"}}}, kText),
            "\"m code=OK\" a=b");
  EXPECT_EQ(LineText({LogLevel::kInfo, "m code=OK"}, kText), "m code=OK");
}

TEST(LineTextTest, LongTextsAreCut) {
  const std::string text(1 << 20, 'a');
  const LogLine line{LogLevel::kInfo, text, {{"name", text}}};
  const size_t most = kMaxLineBytes + kMaxFieldBytes + 30;
  EXPECT_LE(LineText(line, kText).size(), most);
  EXPECT_LE(LineText(line, kJson).size(), most);
  EXPECT_THAT(Parsed(line)["message"].get<std::string>(), EndsWith("..."));
}

TEST(LineTextTest, ANumberThatIsNoneIsNull) {
  const LogLine line{LogLevel::kInfo, "m", {{"ms", 0.0 / 0.0}}};
  EXPECT_TRUE(Parsed(line)["ms"].is_null());
}

TEST(LineTextTest, LineBytesAreEnough) {
  const LogLine line{LogLevel::kWarning, "message", {{"a", "b"}, {"c", 1.5}}};
  // The time of day, the level and what stands around them.
  const size_t around = sizeof(R"({"time":"2026-11-30T12:00:00.000Z",)") +
                        sizeof(R"("level":"warning",})");
  EXPECT_LE(LineText(line, kJson).size() + around, LineBytes(line));
}

}  // namespace
}  // namespace attnd::server
