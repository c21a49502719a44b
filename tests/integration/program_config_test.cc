// --config: every flag from a file, and what a file may not say.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/flag_file.h"
#include "base/flags.h"
#include "server/program/flags.h"
#include "tests/integration/process.h"

namespace attnd::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// attnd's flags, parsed in this process.
struct Parsed {
  Parsed() {
    app.option_defaults()->always_capture_default();
    server::AddFlags(app, flags);
  }
  void CommandLine(const std::vector<std::string>& arguments) {
    std::vector<const char*> argv = {"attnd"};
    for (const std::string& argument : arguments) {
      argv.push_back(argument.c_str());
    }
    ParseFlags(app, static_cast<int>(argv.size()), argv.data());
  }
  void File(const std::string& lines) {
    const TempFolder folder;
    std::ofstream(folder.File("conf")) << lines;
    CommandLine({});
    ReadFlagFile(app, folder.File("conf"));
  }
  std::vector<CLI::Option*> InFiles() {
    return app.get_options(
        [](const CLI::Option* option) { return option->get_configurable(); });
  }

  CLI::App app{"", "attnd"};
  server::Flags flags;
};

// A value that is no flag's default: by its type or, of words, its name.
std::string ValueFor(const CLI::Option& option) {
  static const auto& kValues =
      *new std::map<std::string, std::string>{{"INT", "123"},
                                              {"UINT", "123,456"},
                                              {"FLOAT", "1.5e3"},
                                              {"BYTES", "12MiB"},
                                              {"DURATION", "1m2s"},
                                              {"MODE", "0640"},
                                              {"TEXT", "/a, b=c"},
                                              {"DEVICE", "cuda:0,2"},
                                              {"", "true"},
                                              {"reflection", "all"},
                                              {"log_level", "error"},
                                              {"log_format", "json"},
                                              {"tls_min_version", "1.3"}};
  const std::string name = option.get_lnames().at(0);
  std::string type = option.get_type_name();
  type = type.substr(0, type.find_first_of(": "));
  const auto value = kValues.find(type == "WORD" ? name : type);
  if (value != kValues.end()) return value->second;
  ADD_FAILURE() << "no value for --" << name << " " << type;
  return "";
}

TEST(ProgramConfig, AFileHasEveryFlagAsTheCommandLineHas) {
  int flags = 0;
  Parsed untouched;
  for (const CLI::Option* option : untouched.InFiles()) {
    const std::string name = option->get_lnames().at(0);
    const std::string value = ValueFor(*option);
    Parsed line, file;
    line.CommandLine({absl::StrCat("--", name, "=", value)});
    file.File(absl::StrCat(name, " = ", value));
    const CLI::Option* read = file.app.get_option("--" + name);
    EXPECT_TRUE(read->get_callback_run()) << name;
    EXPECT_EQ(read->results(), line.app.get_option("--" + name)->results());
    EXPECT_EQ(WriteFlagFile(file.app), WriteFlagFile(line.app));
    EXPECT_NE(WriteFlagFile(file.app), WriteFlagFile(untouched.app)) << name;
    ++flags;
  }
  EXPECT_GT(flags, 50);
}

TEST(ProgramConfig, HasListsAndBlanks) {
  Parsed file;
  file.File(
      "device = cuda:0,2\nregion_uids = 1000,1001\nport_file = /a, b=c # d\n"
      "insecure = true\ndrain_time = 1m30s\nmemory_limit = 2GiB\n"
      "tls_min_version = 1.3\nunix_socket_mode = 660\n");
  EXPECT_THAT(file.flags.devices.cuda.devices, ElementsAre(0, 2));
  EXPECT_THAT(file.flags.server.regions.users, ElementsAre(1000, 1001));
  EXPECT_EQ(file.flags.port_file, "/a, b=c");
  EXPECT_TRUE(file.flags.server.allow_insecure_bind);
  EXPECT_EQ(file.flags.server.drain_time, absl::Seconds(90));
  EXPECT_EQ(file.flags.server.memory_limit_bytes, int64_t{2} << 30);
  EXPECT_EQ(file.flags.server.tls.min_version, server::tls::MinVersion::kTls13);
  EXPECT_EQ(file.flags.server.unix_socket_mode, 0660);
}

// Runs attnd with a file of `lines`; for what ends it.
class ProgramConfigFile : public ::testing::Test {
 protected:
  Ran Run(const std::string& lines, std::vector<std::string> flags = {}) {
    std::ofstream(path()) << lines;
    flags.insert(flags.begin(), {ATTND_BINARY, "--config=" + path()});
    return RunProgram(flags);
  }
  std::string Refusal(const std::string& lines) {
    const Ran ran = Run(lines);
    EXPECT_EQ(ran.exit_status, 2) << lines << ran.output;
    return ran.output;
  }
  std::string path() const { return folder_.File("attnd.conf"); }

 private:
  TempFolder folder_;
};

TEST_F(ProgramConfigFile, ServesAndTheCommandLineGoesFirst) {
  std::ofstream(path()) << "admin_address = 127.0.0.1:0\nport = 1\n";
  const auto process =
      ServerProcess::Start(ATTND_BINARY, {"--config=" + path(), "--port=0"});
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE((*process)->AwaitLog("admin on 127.0.0.1:"));
}

TEST_F(ProgramConfigFile, ErrorsNameTheFileTheLineAndTheFlag) {
  EXPECT_THAT(Refusal("port = 1\nprot = 1\n"),
              StartsWith(path() + ":2: \"prot\""));
  EXPECT_THAT(Refusal("insecure\n"), StartsWith(path() + ":1: \"insecure\""));
  EXPECT_THAT(Refusal("port = web\n"), StartsWith(path() + ":1: --port: "));
  EXPECT_THAT(Refusal("port = 0x10\n"), StartsWith(path() + ":1: --port: "));
  EXPECT_THAT(Refusal("token_file =\n"),
              StartsWith(path() + ":1: --token_file: its value is empty"));
  EXPECT_THAT(Refusal("drain_time = 30\n"),
              StartsWith(path() + ":1: --drain_time: "));
  EXPECT_THAT(Refusal("device = gpu\n"), StartsWith(path() + ":1: --device: "));
  for (const std::string name : {"help", "version", "config", "print_config"}) {
    EXPECT_THAT(Refusal(name + " = true\n"),
                StartsWith(absl::StrCat(path(), ":1: --", name, ": ")));
  }
  // Found out when all flags are known.
  const std::string late = Refusal("max_streams = 0\n");
  EXPECT_THAT(late, StartsWith("--max_streams: "));
  EXPECT_THAT(late, HasSubstr(path()));
}

TEST_F(ProgramConfigFile, ThatIsNoneIsNamed) {
  for (const std::string& file : {path(), std::string("/tmp")}) {
    const Ran ran = RunProgram({ATTND_BINARY, "--config=" + file});
    EXPECT_EQ(ran.exit_status, 2);
    EXPECT_THAT(ran.output, StartsWith(file + ": "));
  }
  const Ran ran = RunProgram({ATTND_BINARY, "--config="});
  EXPECT_EQ(ran.exit_status, 2);
  EXPECT_THAT(ran.output, HasSubstr("--config: its value is empty"));
}

TEST_F(ProgramConfigFile, MayHaveEmptyAddresses) {
  const Ran ran = Run("unix_socket =\nadmin_address =\nregion_socket =\n",
                      {"--device=cpu", "--print_config"});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("\nunix_socket =\n"));
}

TEST_F(ProgramConfigFile, ThatIsPrintedReadsBackTheSame) {
  const Ran first =
      Run("device = cpu*4\nregion_uids = 7,8\nmemory_limit = 2GiB\n",
          {"--insecure", "--port_file=/tmp/a # b", "--tls_min_version=1.3",
           "--print_config"});
  ASSERT_EQ(first.exit_status, 0) << first.output;
  for (const char* line :
       {"device = cpu*4", "region_uids = 7,8", "memory_limit = 2147483648",
        "insecure = true", "port_file = \"/tmp/a # b\"",
        "tls_min_version = 1.3", "#port = 7411", "#drain_time = 30s"}) {
    EXPECT_THAT(first.output, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
  const Ran second = Run(first.output, {"--print_config"});
  EXPECT_EQ(second.exit_status, 0);
  EXPECT_EQ(second.output, first.output);
}

// What is installed as /etc/attnd.conf.
TEST(ProgramConfig, TheSampleHasTheDefaults) {
  std::ifstream file(ATTND_SAMPLE_CONFIG);
  const std::string sample{std::istreambuf_iterator<char>(file), {}};
  Parsed whole;
  EXPECT_NO_THROW(whole.File(sample));
  int flags = 0;
  for (absl::string_view line : absl::StrSplit(sample, '\n')) {
    // Of prose, the # has a blank behind it.
    if (!absl::ConsumePrefix(&line, "#") || line.empty() || line[0] == ' ' ||
        line[0] == '#') {
      continue;
    }
    Parsed one;
    ASSERT_NO_THROW(one.File(std::string(line))) << line;
    ++flags;
    for (const CLI::Option* option : one.InFiles()) {
      if (option->count() == 0) continue;
      std::string without = option->get_default_str();
      if (option->get_items_expected_max() == 0) without = "false";
      // A flag that is off, or without a value, is shown with an example.
      if (without.empty() || without == "[]") continue;
      EXPECT_EQ(absl::StrJoin(option->results(), ","), without) << line;
    }
  }
  EXPECT_GT(flags, 25);
}

}  // namespace
}  // namespace attnd::testing
