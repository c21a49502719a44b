// oracle_check from outside: whom it lets pass. The model's own values are
// results that agree.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/process.h"

namespace attnd {
namespace {

using ::attnd::testing::Ran;
using ::attnd::testing::RunProgram;
using ::testing::HasSubstr;

constexpr char kData[] = ATTND_TEST_DATA "/minilm/layer0";

class OracleCheckTest : public ::testing::Test {
 protected:
  void Copy(const std::string& from, const std::string& to) {
    std::filesystem::copy_file(
        std::string(kData) + "/" + from + ".npy", File(to),
        std::filesystem::copy_options::overwrite_existing);
  }
  void CopyAll() {
    for (const char* name : {"o", "lse", "dq", "dk", "dv"}) Copy(name, name);
  }
  std::string File(const std::string& name) {
    return folder_.File(name + ".npy");
  }
  Ran Check(const std::vector<std::string>& flags) {
    std::vector<std::string> command = {ATTND_ORACLE_CHECK, kData,
                                        folder_.File("")};
    command.insert(command.end(), flags.begin(), flags.end());
    return RunProgram(command);
  }

  testing::TempFolder folder_;
};

TEST_F(OracleCheckTest, AllOfTheModelsOwnValuesAgree) {
  CopyAll();
  const Ran ran = Check({"--all"});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
  for (const char* row : {"  o ", "  lse ", "  dq ", "  dk ", "  dv "}) {
    EXPECT_THAT(ran.output, HasSubstr(row));
  }
}

TEST_F(OracleCheckTest, AnyMissingResultFailsWhenAllAreAskedFor) {
  for (const char* name : {"o", "lse", "dq", "dk", "dv"}) {
    CopyAll();
    std::filesystem::remove(File(name));
    const Ran ran = Check({"--all"});
    EXPECT_EQ(ran.exit_status, 1) << name << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(std::string(name) + ".npy: missing"));
  }
}

TEST_F(OracleCheckTest, ForwardNeedsItsTwoResultsAlone) {
  Copy("o", "o");
  EXPECT_EQ(Check({"--forward"}).exit_status, 1);
  Copy("lse", "lse");
  const Ran ran = Check({"--forward"});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
}

TEST_F(OracleCheckTest, SomeResultsWillDoButNotNone) {
  EXPECT_EQ(Check({}).exit_status, 1);
  Copy("o", "o");
  const Ran ran = Check({});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
}

TEST_F(OracleCheckTest, AWrongResultDisagrees) {
  CopyAll();
  Copy("dk", "dv");
  const Ran ran = Check({"--all"});
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_THAT(ran.output, HasSubstr("DISAGREES"));
}

TEST_F(OracleCheckTest, UnknownFlagsAreUsageErrors) {
  EXPECT_EQ(Check({"--some"}).exit_status, 2);
}

}  // namespace
}  // namespace attnd
