#include "base/flag_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/flags.h"
#include "tests/temp_folder.h"

namespace attnd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A program with a flag of each kind.
struct Program {
  Program() : app("", "program") {
    app.option_defaults()->always_capture_default();
    app.set_version_flag("--version", "1");
    app.add_option("--text", text, "Any text")->group("Words");
    app.add_option("--socket", socket)->group("Words");
    app.add_option("--list", list, "Numbers, one after the other")
        ->delimiter(',')
        ->group("Numbers");
    app.add_flag("--on", on, "Whether it is on")->group("Numbers");
    app.add_option("--whole", whole)
        ->check(CLI::Range(-1000, 1000))
        ->group("Numbers");
    app.add_option("--bytes", bytes)
        ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
        ->type_name("BYTES")
        ->group("Numbers");
    app.add_option_function<std::string>("--even",
                                         [this](const std::string& value) {
                                           if (value.size() % 2 == 0) return;
                                           throw CLI::ValidationError(
                                               "--even", "its length is odd");
                                         })
        ->group("Words");
    app.add_option("--config", config)->configurable(false);
  }

  // Parses `arguments`, then a file with `lines`. What that says, or nothing.
  std::string Read(const std::string& lines,
                   std::vector<const char*> arguments = {}) {
    std::ofstream(folder.File("conf")) << lines;
    arguments.insert(arguments.begin(), "program");
    try {
      ParseFlags(app, static_cast<int>(arguments.size()), arguments.data(),
                 {"--socket"});
      ReadFlagFile(app, folder.File("conf"), {"--socket"});
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  testing::TempFolder folder;
  CLI::App app;
  std::string text = "default", socket = "default", config;
  std::vector<uint64_t> list;
  bool on = false;
  int whole = 7;
  int64_t bytes = 1024;
};

std::string Refusal(const std::string& lines) {
  Program program;
  std::string said = program.Read(lines);
  const std::string path = program.folder.File("conf") + ":";
  EXPECT_THAT(said, StartsWith(path)) << lines;
  return said.substr(std::min(path.size(), said.size()));
}

TEST(FlagFile, HasEachKindOfFlag) {
  Program program;
  ASSERT_EQ(program.Read("# what a file looks like\n"
                         "\n"
                         "text = a, b  c=d  # a comment\n"
                         "  socket=/run/x\t\r\n"
                         "\t# another\n"
                         "list = 1,2,3\n"
                         "on = true\n"
                         "whole = -010\n"
                         "bytes = 2KiB"),
            "");
  EXPECT_EQ(program.text, "a, b  c=d");
  EXPECT_EQ(program.socket, "/run/x");
  EXPECT_EQ(program.list, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(program.on);
  EXPECT_EQ(program.whole, -10);
  EXPECT_EQ(program.bytes, 2048);
}

TEST(FlagFile, MayBeEmpty) {
  Program program;
  ASSERT_EQ(program.Read(""), "");
  EXPECT_EQ(program.text, "default");
  EXPECT_EQ(program.whole, 7);
  EXPECT_EQ(program.app.count("--whole"), 0);
}

TEST(FlagFile, AQuotedValueIsWhatStandsThere) {
  for (const auto& [line, text] :
       std::vector<std::pair<std::string, std::string>>{
           {"text = \" # ' \\n \"", " # ' \\n "},
           {"text = ' \" ' # a comment", " \" "},
           {"text = it's \"so\"", "it's \"so\""},
           {"text = \"a\"# a comment", "a"}}) {
    Program program;
    EXPECT_EQ(program.Read(line), "") << line;
    EXPECT_EQ(program.text, text) << line;
  }
  EXPECT_THAT(Refusal("text = \"a"), HasSubstr("1: --text: "));
  EXPECT_THAT(Refusal("text = 'a\""), HasSubstr("1: --text: "));
  EXPECT_THAT(Refusal("text = \"a\" b"), HasSubstr("1: --text: "));
}

TEST(FlagFile, AValueIsNeverCutAtAComment) {
  EXPECT_THAT(Refusal("text = /a#b"),
              HasSubstr("1: --text: its value has a #"));
  // Which would leave no value.
  EXPECT_THAT(Refusal("text = # nothing"),
              HasSubstr("1: --text: its value is empty"));
}

TEST(FlagFile, TheCommandLineGoesFirst) {
  Program program;
  ASSERT_EQ(program.Read("whole = 1\nlist = 1,2\non = true\ntext = file\n",
                         {"--whole=2", "--list=3", "--on=false"}),
            "");
  EXPECT_EQ(program.whole, 2);
  EXPECT_EQ(program.list, std::vector<uint64_t>{3});
  EXPECT_FALSE(program.on);
  EXPECT_EQ(program.text, "file");
}

TEST(FlagFile, WhatItGaveCountsAsGiven) {
  Program program;
  ASSERT_EQ(program.Read("whole = 7\n"), "");
  EXPECT_EQ(program.app.count("--whole"), 1);
  EXPECT_EQ(program.app.count("--bytes"), 0);
}

TEST(FlagFile, WhatIsNoFlagIsRefusedWithItsLine) {
  EXPECT_THAT(Refusal("whole = 1\n\nwhale = 2\n"), HasSubstr("3: \"whale\""));
  EXPECT_THAT(Refusal("--whole = 1"), HasSubstr("1: \"--whole\""));
  EXPECT_THAT(Refusal("Whole = 1"), HasSubstr("1: \"Whole\""));
  EXPECT_THAT(Refusal("= 1"), HasSubstr("1: \"\""));
  EXPECT_THAT(Refusal("whole"), HasSubstr("1: \"whole\" is not of the form"));
  EXPECT_THAT(Refusal("on"), HasSubstr("1: \"on\" is not of the form"));
  EXPECT_THAT(Refusal("a"), HasSubstr("1: \"a\" is not of the form"));
  EXPECT_THAT(Refusal("[section]\nwhole = 1"), HasSubstr("1: \"[section]\""));
  EXPECT_THAT(Refusal("; whole = 1"), HasSubstr("1: \"; whole\""));
  EXPECT_THAT(Refusal("\x01\n"), HasSubstr("1: \"\\x01\""));
}

TEST(FlagFile, WhatIsForTheCommandLineIsRefused) {
  EXPECT_THAT(Refusal("help = true"), HasSubstr("1: --help: "));
  EXPECT_THAT(Refusal("version = true"), HasSubstr("1: --version: "));
  EXPECT_THAT(Refusal("config = other"), HasSubstr("1: --config: "));
}

TEST(FlagFile, AFlagIsThereOnce) {
  EXPECT_THAT(Refusal("whole = 1\nlist = 1\nwhole = 1"),
              HasSubstr("3: --whole: line 1 has it"));
  EXPECT_THAT(Refusal("list = 1\nlist = 2"), HasSubstr("2: --list: line 1"));
}

TEST(FlagFile, ValuesObeyTheRulesOfTheCommandLine) {
  EXPECT_THAT(Refusal("whole = 0x10"), HasSubstr("1: --whole: \"0x10\""));
  EXPECT_THAT(Refusal("whole = many"), HasSubstr("1: --whole: \"many\""));
  EXPECT_THAT(Refusal("whole = 1001"), HasSubstr("1: --whole: "));
  EXPECT_THAT(Refusal("whole = 1, 2"), HasSubstr("1: --whole: "));
  EXPECT_THAT(Refusal("whole ="), HasSubstr("1: --whole: its value is empty"));
  EXPECT_THAT(Refusal("whole = ''"), HasSubstr("1: --whole: its value is"));
  EXPECT_THAT(Refusal("bytes = -1"), HasSubstr("1: --bytes: "));
  EXPECT_THAT(Refusal("bytes = 1 parsec"), HasSubstr("1: --bytes: "));
  EXPECT_THAT(Refusal("list = 1,x"), HasSubstr("1: --list: \"x\""));
  EXPECT_THAT(Refusal("on = perhaps"), HasSubstr("--on"));
  EXPECT_THAT(Refusal("on ="), HasSubstr("1: --on: its value is empty"));
  EXPECT_THAT(Refusal("even = odd"), HasSubstr("1: --even: its length is odd"));
  EXPECT_EQ(Refusal("text = \x01\nwhole = \x01").find('\x01'),
            std::string::npos);
  Program program;
  ASSERT_EQ(program.Read("socket =\non = false\n"), "");
  EXPECT_EQ(program.socket, "");
  EXPECT_FALSE(program.on);
}

TEST(FlagFile, ThatCannotBeReadIsNamed) {
  const auto read = [](const std::string& path) -> std::string {
    Program program;
    EXPECT_EQ(program.Read(""), "");
    try {
      ReadFlagFile(program.app, path);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(read("/no/such/file"), "/no/such/file: No such file or directory");
  EXPECT_EQ(read("/"), "/: is not a regular file");
}

TEST(FlagFile, ThatIsWrittenReadsBackTheSame) {
  const std::vector<const char*> given = {
      "--text= # \"x\"", "--socket=",   "--list=1,2", "--on",
      "--whole=-3",      "--bytes=2KiB"};
  Program first;
  ASSERT_EQ(first.Read("", given), "");
  const std::string written = WriteFlagFile(first.app);
  Program second;
  ASSERT_EQ(second.Read(written), "") << written;
  EXPECT_EQ(second.text, first.text);
  EXPECT_EQ(second.socket, "");
  EXPECT_EQ(second.list, first.list);
  EXPECT_TRUE(second.on);
  EXPECT_EQ(second.whole, -3);
  EXPECT_EQ(second.bytes, 2048);
  EXPECT_EQ(WriteFlagFile(second.app), written);
}

TEST(FlagFile, ThatIsWrittenHasWhatWasGivenAndCommentsForTheRest) {
  Program program;
  ASSERT_EQ(program.Read("whole = 3\n"), "");
  const std::string written = "\n" + WriteFlagFile(program.app);
  EXPECT_THAT(written,
              HasSubstr("\n## Words\n\n# Any text\n#text = default\n"));
  EXPECT_THAT(written, HasSubstr("\n## Numbers\n\n# Numbers, one after the "
                                 "other\n#list =\n"));
  EXPECT_THAT(written, HasSubstr("\n#on = false\n"));
  EXPECT_THAT(written, HasSubstr("\nwhole = 3\n"));
  EXPECT_THAT(written, HasSubstr("\n#bytes = 1024\n"));
  for (const char* none : {"help", "version", "config"}) {
    EXPECT_THAT(written, ::testing::Not(HasSubstr(none)));
  }
}

}  // namespace
}  // namespace attnd
