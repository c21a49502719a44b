#include "base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace attnd {
namespace {

using ::testing::HasSubstr;

// A program with a flag of each kind, some of them of a command.
struct Program {
  Program() : app("", "program") {
    app.add_option("target", target);
    app.add_option("--text", text);
    app.add_option("--socket", socket);
    app.add_option("--list", list)->allow_extra_args(false);
    app.add_flag("--on", on);
    app.add_option("--whole", whole)->check(CLI::Range(-1000, 1000));
    app.add_option("--maybe", maybe);
    app.add_option("--seed", seed);
    app.add_option("--real", real);
    app.add_option("--bytes", bytes)
        ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
        ->type_name("BYTES");
    CLI::App* command = app.add_subcommand("command");
    command->add_option("--file", file);
    command->add_option("--stride", stride);
    command->add_flag("--causal", causal);
  }

  // What parsing says, or nothing.
  std::string Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    try {
      ParseFlags(app, static_cast<int>(arguments.size()), arguments.data(),
                 {"--socket"});
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  CLI::App app;
  std::string target, text = "default", socket = "default", file;
  std::vector<std::string> list;
  bool on = false, causal = false;
  int whole = 0;
  std::optional<int> maybe;
  uint64_t seed = 0;
  double real = 0;
  int64_t bytes = 0, stride = 0;
};

std::string Refusal(const std::vector<const char*>& arguments) {
  return Program().Parse(arguments);
}

TEST(ParseFlags, AnEmptyValueDoesNotTakeTheNextFlag) {
  EXPECT_THAT(Refusal({"--text=", "--on"}), HasSubstr("--text: "));
  EXPECT_THAT(Refusal({"--text", "", "--on"}), HasSubstr("--text: "));
  EXPECT_THAT(Refusal({"--list=a", "--list=", "--on"}), HasSubstr("--list: "));
  EXPECT_THAT(Refusal({"--whole=", "7"}), HasSubstr("--whole: "));
  EXPECT_THAT(Refusal({"--bytes="}), HasSubstr("--bytes: "));
  EXPECT_THAT(Refusal({"--on="}), HasSubstr("--on: "));
  EXPECT_THAT(Refusal({"command", "--file=", "--causal"}),
              HasSubstr("--file: "));
}

TEST(ParseFlags, AFlagThatMayBeEmptyIsEmptyAndTheNextOneAFlag) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"--socket=", "--on", "here"},
        {"--socket", "", "--on", "here"},
        {"here", "--on", "--socket="}}) {
    Program program;
    EXPECT_EQ(program.Parse(arguments), "");
    EXPECT_EQ(program.socket, "");
    EXPECT_TRUE(program.on);
    EXPECT_EQ(program.target, "here");
  }
}

TEST(ParseFlags, AForgottenValueIsNotTheNextFlag) {
  EXPECT_THAT(Refusal({"--text", "--on"}), HasSubstr("--text: "));
  EXPECT_THAT(Refusal({"command", "--file", "--causal"}),
              HasSubstr("--file: "));
  EXPECT_THAT(Refusal({"--text"}), HasSubstr("--text"));
  Program program;
  EXPECT_EQ(program.Parse({"--text=--on", "--real", "-1", "--", "--target"}),
            "");
  EXPECT_EQ(program.text, "--on");
  EXPECT_EQ(program.real, -1);
  EXPECT_EQ(program.target, "--target");
  EXPECT_FALSE(program.on);
}

TEST(ParseFlags, EveryNumberIsDecimal) {
  Program program;
  ASSERT_EQ(program.Parse({"--whole=-010", "--maybe", "010", "--seed=010",
                           "--real=010", "--bytes=010KiB", "command",
                           "--stride=010"}),
            "");
  EXPECT_EQ(program.whole, -10);
  EXPECT_EQ(program.maybe, 10);
  EXPECT_EQ(program.seed, 10);
  EXPECT_EQ(program.real, 10);
  EXPECT_EQ(program.bytes, 10 << 10);
  EXPECT_EQ(program.stride, 10);
  for (const std::string flag :
       {"--whole", "--maybe", "--seed", "--real", "--bytes"}) {
    for (const std::string value : {"0x10", "0b10", "1\x01"}) {
      const std::string argument = flag + "=" + value;
      const std::string said = Refusal({argument.c_str()});
      EXPECT_THAT(said, HasSubstr(flag + ": "));
      EXPECT_EQ(said.find('\x01'), std::string::npos) << said;
    }
  }
  EXPECT_THAT(Refusal({"command", "--stride=0x10"}), HasSubstr("--stride: "));
}

TEST(ParseFlags, NumbersAreNeitherCutNorWrapped) {
  Program program;
  ASSERT_EQ(program.Parse({"--seed=18446744073709551615", "command",
                           "--stride=9223372036854775807"}),
            "");
  EXPECT_EQ(program.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(program.stride, std::numeric_limits<int64_t>::max());
  for (const char* argument :
       {"--seed=18446744073709551616", "--seed=-1", "--maybe=4294967297",
        "--whole=1001", "--bytes=-1", "--bytes=18446744073709551616",
        "--bytes=17179869184GiB"}) {
    EXPECT_NE(Refusal({argument}), "") << argument;
  }
  EXPECT_NE(Refusal({"command", "--stride=9223372036854775808"}), "");
}

}  // namespace
}  // namespace attnd
