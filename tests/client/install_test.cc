// Installs the client, and builds and runs a project that has nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/integration/process.h"

namespace attnd::testing {
namespace {

void Succeeds(const std::vector<std::string>& command) {
  const Ran ran = RunProgram(command);
  ASSERT_EQ(ran.exit_status, 0) << command[1] << ":\n" << ran.output;
}

// Everything, as README says it; the quickstart builds no more than it needs,
// and all of this.
TEST(InstallTest, WhatTheQuickstartBuildsIsWhatIsInstalled) {
  TempFolder folder;
  Succeeds({ATTND_CMAKE, "--install", ATTND_BUILD, "--prefix",
            folder.File("prefix")});
  std::vector<std::string> built;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder.File("prefix"))) {
    const std::filesystem::path& path = entry.path();
    if (path.parent_path().filename() == "bin" || path.extension() == ".a") {
      built.push_back(path.filename());
    }
  }
  EXPECT_THAT(built, ::testing::UnorderedElementsAre(
                         "attnd", "attnctl", "attnload", "libattnd_client.a",
                         "libattnd_client_tls_guard.a"));
  std::ifstream file(ATTND_QUICKSTART);
  const std::string script{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(script, ::testing::HasSubstr("--target attnd attnctl attnload "
                                           "attnd_client_package "));
}

TEST(InstallTest, AnOutsideProjectFindsLinksAndRunsTheClient) {
  TempFolder folder;
  const std::string prefix = folder.File("prefix");
  const std::string build = folder.File("build");
  Succeeds({ATTND_CMAKE, "--install", ATTND_BUILD, "--component", "client",
            "--prefix", prefix});
  Succeeds({ATTND_CMAKE, "-S", ATTND_OUTSIDE, "-B", build, "-G", "Ninja",
            "-DCMAKE_PREFIX_PATH=" + prefix, "-DCMAKE_BUILD_TYPE=Release"});
  Succeeds({ATTND_CMAKE, "--build", build});
  const auto server = ServerProcess::Start(ATTND_BINARY);
  ASSERT_TRUE(server.ok()) << server.status();
  const Ran ran = RunProgram({build + "/outside", (*server)->tcp()});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
  EXPECT_THAT(ran.output, ::testing::StartsWith("o[0] = "));
}

}  // namespace
}  // namespace attnd::testing
