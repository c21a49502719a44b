// attnctl's flags from outside: bad ones, empty values, choices and numbers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/attnctl_fixture.h"
#include "tests/client/rude_server.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Ran;
using ::attnd::testing::RunProgram;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(AttnctlTest, BadFlagsAreUsageErrors) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--layout=sideways"},
                                             {"--algorithm=fastest"},
                                             {"--plan=sideways"},
                                             {"--dtype=f8"},
                                             {"--priority=urgent"},
                                             {"--scale=much"},
                                             {"--window_left=x"},
                                             {"--timeout=soon"},
                                             {"--timeout=-1s"},
                                             {"--connections=0"},
                                             {"--connections=257"},
                                             {"--gpu=-1"},
                                             {"--tolerance=-1"},
                                             {"--no_such_flag"}}) {
    const Ran ran = Forward(flags);
    EXPECT_EQ(ran.exit_status, kBadInput) << flags[0] << "\n" << ran.output;
  }
  EXPECT_EQ(RunProgram({ATTND_ATTNCTL}).exit_status, kBadInput);
  EXPECT_EQ(RunProgram({ATTND_ATTNCTL, "sideways"}).exit_status, kBadInput);
  EXPECT_EQ(Run({"forward"}).exit_status, kBadInput);
}

TEST_F(AttnctlTest, AnEmptyValueIsNotTheNextFlag) {
  for (const char* flag : {"--lse=", "--o=", "--bias=", "--expect_o=",
                           "--q_lens=", "--algorithm=", "--timeout="}) {
    const Ran ran = Forward({flag, "--causal"});
    EXPECT_EQ(ran.exit_status, kBadInput) << flag << "\n" << ran.output;
    EXPECT_THAT(ran.output,
                StartsWith(std::string(flag, std::strlen(flag) - 1)));
    EXPECT_FALSE(std::filesystem::exists("--causal")) << flag;
  }
  EXPECT_EQ(Forward({"--lse", "--causal"}).exit_status, kBadInput);
  EXPECT_FALSE(std::filesystem::exists("--causal"));
  // The server itself has the empty name.
  const Ran health = Run({"health", "--service=", "--json"});
  EXPECT_EQ(health.exit_status, kDone) << health.output;
  EXPECT_THAT(health.output, HasSubstr("{\"status\": \"SERVING\"}"));
}

TEST_F(AttnctlTest, ABadChoiceIsAnsweredWithTheChoices) {
  const std::vector<std::pair<std::string, std::string>> choices = {
      {"--algorithm",
       "auto, flash_attention_1, flash_attention_2, naive, online_softmax"},
      {"--plan", "auto, gather, heads, kv, one_device, ring, striped, zigzag"},
      {"--layout", "bhsd, bshd, packed"},
      {"--priority", "high, low, normal"},
      {"--dtype", "bf16, f16, f32"},
      {"--out_dtype", "bf16, f16, f32"},
      {"--transport", "auto, device_region, region, stream, unary"}};
  for (const auto& [flag, names] : choices) {
    // The number of a choice is not its name, nor is the byte of that number.
    for (const std::string value : {"other", "1", "\x01"}) {
      const Ran ran = Forward({flag + "=" + value});
      EXPECT_EQ(ran.exit_status, kBadInput) << flag << "=" << value;
      EXPECT_THAT(ran.output, StartsWith(flag + ": "));
      EXPECT_THAT(ran.output, HasSubstr(" is none of " + names + "\n"));
      EXPECT_THAT(Controls(ran.output), IsEmpty());
    }
    EXPECT_THAT(RunProgram({ATTND_ATTNCTL, "forward", "--help"}).output,
                HasSubstr("{" + names + "}"));
  }
}

TEST_F(AttnctlTest, ARegionNeedsItsServersSocket) {
  for (const char* transport : {"region", "device_region"}) {
    const std::string flag = absl::StrCat("--transport=", transport);
    const Ran none = Forward({flag});
    EXPECT_EQ(none.exit_status, kBadInput) << none.output;
    EXPECT_THAT(none.output, HasSubstr("--region_socket"));
  }
  const Ran nobody =
      Forward({"--transport=region", "--region_socket=/nowhere/at/all"});
  EXPECT_EQ(nobody.exit_status, kCallFailed) << nobody.output;
  EXPECT_THAT(nobody.output, HasSubstr("/nowhere/at/all"));
}

// 010 is ten, as it is in a list.
TEST_F(AttnctlTest, NumbersAreDecimal) {
  const std::string o = folder_.File("o.npy");
  const auto stride = [&](const char* value, std::string more) {
    return Forward({"--causal", "--q_start=0",
                    std::string("--q_stride=") + value, std::move(more),
                    "--tolerance=0"})
        .exit_status;
  };
  ASSERT_EQ(stride("10", "--o=" + o), kDone);
  EXPECT_EQ(stride("010", "--expect_o=" + o), kDone);
  EXPECT_EQ(stride("8", "--expect_o=" + o), kDiffers);
  EXPECT_EQ(stride("0x0a", "--expect_o=" + o), kBadInput);
}

TEST_F(AttnctlTest, HelpSaysEveryFlagAndSucceeds) {
  for (const char* command : {"info", "health", "forward", "backward"}) {
    const Ran ran = RunProgram({ATTND_ATTNCTL, command, "--help"});
    EXPECT_EQ(ran.exit_status, kDone);
    EXPECT_THAT(ran.output, HasSubstr("--server"));
    EXPECT_THAT(ran.output, HasSubstr("Exit status"));
  }
}

}  // namespace
}  // namespace attnd::client
