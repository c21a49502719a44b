// What attnctl reads and writes where it is no ordinary file: FIFOs, pipes,
// full disks and folders that are not there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/attnctl/npy.h"
#include "tests/client/attnctl_fixture.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Ran;
using ::attnd::testing::RunProgram;
using ::testing::HasSubstr;

// As it would be with a writer that never comes.
TEST_F(AttnctlTest, AFifoIsNoInput) {
  const std::string fifo = folder_.File("fifo.npy");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectBadFile(fifo, "not a regular file");
  const Ran list = Forward({"--q_lens=" + fifo});
  EXPECT_EQ(list.exit_status, kBadInput);
  EXPECT_THAT(list.output, HasSubstr("not a regular file"));
}

TEST_F(AttnctlTest, AFullDiskLeavesNoPartOfAnOutput) {
  const std::string o = folder_.File("o.npy");
  std::vector<std::string> command = {"/bin/sh",
                                      "-c",
                                      "trap '' XFSZ; ulimit -f 8; exec \"$@\"",
                                      "sh",
                                      ATTND_ATTNCTL,
                                      "forward",
                                      "--server=" + server_->tcp()};
  for (const char* name : {"q", "k", "v"}) {
    command.push_back(absl::StrCat("--", name, "=", Data(name)));
  }
  command.push_back("--o=" + o);
  const Ran ran = RunProgram(command);
  EXPECT_EQ(ran.exit_status, kBadInput) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr(o));
  EXPECT_FALSE(std::filesystem::exists(o));
  const Ran full = Forward({"--o=/dev/full"});
  EXPECT_EQ(full.exit_status, kBadInput);
  EXPECT_THAT(full.output, HasSubstr("/dev/full: No space left"));
}

TEST_F(AttnctlTest, AnArrayOnStdoutIsAllThatIsThere) {
  const std::string o = folder_.File("o.npy");
  ASSERT_EQ(Forward({"--o=" + o}).exit_status, kDone);
  const auto array = ReadNpy(o);
  ASSERT_TRUE(array.ok()) << array.status();
  const std::string piped = folder_.File("piped.npy");
  std::vector<std::string> command = {"/bin/sh",
                                      "-c",
                                      "to=$0; exec \"$@\" | cat >\"$to\"",
                                      piped,
                                      ATTND_ATTNCTL,
                                      "forward",
                                      "--server=" + server_->tcp(),
                                      "--o=/dev/stdout"};
  for (const char* name : {"q", "k", "v"}) {
    command.push_back(absl::StrCat("--", name, "=", Data(name)));
  }
  const Ran ran = RunProgram(command);
  EXPECT_THAT(ran.output, HasSubstr("in /dev/stdout"));  // on stderr
  const auto read = ReadNpy(piped);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->data, array->data);
}

TEST_F(AttnctlTest, AReportThatCannotBeWrittenIsAnError) {
  const Ran ran =
      RunProgram({"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh",
                  ATTND_ATTNCTL, "health", "--server=" + server_->tcp()});
  EXPECT_EQ(ran.exit_status, kBadInput);
  EXPECT_THAT(ran.output, HasSubstr("cannot write to standard output"));
}

TEST_F(AttnctlTest, AnOutputThatCannotBeWrittenIsAnError) {
  const Ran ran = Forward({"--o=" + folder_.File("no/such/folder.npy")});
  EXPECT_EQ(ran.exit_status, kBadInput);
  EXPECT_THAT(ran.output, HasSubstr("no/such/folder.npy"));
}

}  // namespace
}  // namespace attnd::client
