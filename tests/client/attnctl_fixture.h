#ifndef ATTND_TESTS_CLIENT_ATTNCTL_FIXTURE_H_
#define ATTND_TESTS_CLIENT_ATTNCTL_FIXTURE_H_

// attnctl from outside, on real data, against an attnd of the suite's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/process.h"

namespace attnd::client {

// What attnctl exits with.
inline constexpr int kDone = 0, kDiffers = 1, kBadInput = 2, kCallFailed = 3;

class AttnctlTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = testing::ServerProcess::Start(ATTND_BINARY);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server).release();
  }
  static void TearDownTestSuite() { delete server_; }

  static std::string Data(const std::string& name) {
    return ATTND_TEST_DATA "/minilm/layer0/" + name + ".npy";
  }

  testing::Ran Run(std::vector<std::string> command) {
    command.insert(command.begin(), ATTND_ATTNCTL);
    command.push_back("--server=" + server_->tcp());
    return testing::RunProgram(command);
  }
  testing::Ran Forward(std::vector<std::string> more,
                       const std::string& q = Data("q")) {
    std::vector<std::string> command = {"forward", "--q=" + q,
                                        "--k=" + Data("k"), "--v=" + Data("v")};
    command.insert(command.end(), more.begin(), more.end());
    return Run(command);
  }

  void ExpectBadFile(const std::string& path, const std::string& why) {
    const testing::Ran ran = Forward({}, path);
    EXPECT_EQ(ran.exit_status, kBadInput) << ran.output;
    EXPECT_THAT(ran.output, ::testing::HasSubstr(path));
    EXPECT_THAT(ran.output, ::testing::HasSubstr(why));
  }

  static inline testing::ServerProcess* server_ = nullptr;
  testing::TempFolder folder_;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_ATTNCTL_FIXTURE_H_
