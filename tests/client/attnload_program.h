#ifndef ATTND_TESTS_CLIENT_ATTNLOAD_PROGRAM_H_
#define ATTND_TESTS_CLIENT_ATTNLOAD_PROGRAM_H_

// attnload as a program, and an attnd for it to load.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/hang_limit.h"
#include "tests/integration/http_get.h"
#include "tests/integration/process.h"

namespace attnd {

// Its exit statuses.
inline constexpr int kDone = 0, kBadOrNone = 1, kBadUsage = 2;

// Few bytes and little work, for tests that look at neither.
inline constexpr char kSmall[] = "--shape=s8:h1:d8";

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AttnloadTest : public ::testing::Test {
 protected:
  // One for each test: what it has counted is from that test.
  void SetUp() override {
    auto server =
        testing::ServerProcess::Start(ATTND_BINARY, {"--metrics_port=0"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  static std::vector<std::string> Command(
      const std::string& target, const std::vector<std::string>& flags) {
    std::vector<std::string> command = {ATTND_ATTNLOAD, target};
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }
  testing::Ran Run(const std::vector<std::string>& flags) const {
    return testing::RunProgram(Command(server_->tcp(), flags));
  }
  // What runs the command that follows it with stderr sent to `path`.
  static std::vector<std::string> StderrTo(const std::string& path) {
    return {"/bin/sh", "-c", "to=$0; exec \"$@\" 2>\"$to\"", path};
  }
  // With stderr sent to `path`, which leaves stdout in Ran::output.
  testing::Ran RunWithStderrTo(const std::string& path,
                               const std::vector<std::string>& flags) const {
    std::vector<std::string> command = StderrTo(path);
    const std::vector<std::string> rest = Command(server_->tcp(), flags);
    command.insert(command.end(), rest.begin(), rest.end());
    return testing::RunProgram(command);
  }

  struct Measured {
    testing::Ran ran;
    nlohmann::json levels;
  };
  // Runs it with --json, and reads that.
  Measured Measure(const std::string& target, std::vector<std::string> flags) {
    const std::string path = folder_.File("results.json");
    flags.push_back("--json=" + path);
    Measured measured{testing::RunProgram(Command(target, flags)), {}};
    const nlohmann::json parsed =
        nlohmann::json::parse(ReadText(path), nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << measured.ran.output;
    if (parsed.is_discarded()) return measured;
    EXPECT_EQ(parsed["target"], target);
    measured.levels = parsed["levels"];
    return measured;
  }
  Measured Measure(const std::vector<std::string>& flags) {
    Measured measured = Measure(server_->tcp(), flags);
    EXPECT_EQ(measured.ran.exit_status, 0) << measured.ran.output;
    return measured;
  }

  // What the server has counted by now.
  double Counted(const std::string& series) const {
    return testing::MetricValue(server_->Metrics(), series).value_or(0);
  }
  // The calls that it has counted, which should become `expected`: it counts
  // one once gRPC is done with it, which is after its client has the answer.
  double Requests(double expected, const char* method,
                  const char* code = "OK") const {
    const std::string series = absl::StrCat(
        "attnd_requests_total{code=\"", code, "\",method=\"", method, "\"}");
    (void)testing::Eventually([&] { return Counted(series) == expected; });
    return Counted(series);
  }

  std::unique_ptr<testing::ServerProcess> server_;
  testing::TempFolder folder_;
};

}  // namespace attnd

#endif  // ATTND_TESTS_CLIENT_ATTNLOAD_PROGRAM_H_
