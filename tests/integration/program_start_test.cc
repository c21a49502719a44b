// What keeps attnd from starting: it says so, exits with 1 and leaves nothing.
// And who is told that it has started.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"

namespace attnd::testing {
namespace {

using Command = std::vector<std::string>;

Command Attnd(Command before, Command flags) {
  Command command = std::move(before);
  for (const char* part : {ATTND_BINARY, "--port=0", "--device=cpu"}) {
    command.push_back(part);
  }
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path().filename());
  }
  return files;
}

TEST(ProgramStart, APortFileThatCannotTakeItsNameLeavesNothing) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.File("port"));
  const Ran ran = RunProgram(Attnd({}, {"--port_file=" + folder.File("port")}));
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_TRUE(absl::StrContains(ran.output, "--port_file: cannot write"))
      << ran.output;
  EXPECT_EQ(FilesIn(folder.File("")), std::vector<std::string>{"port"});
}

TEST(ProgramStart, APortFileThatFindsNoRoomLeavesNothing) {
  const TempFolder folder;
  // No file may grow beyond a byte: as on a full disk, with a signal besides.
  const Ran ran = RunProgram(Attnd({"/usr/bin/prlimit", "--fsize=1"},
                                   {"--port_file=" + folder.File("port")}));
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_TRUE(FilesIn(folder.File("")).empty());
}

TEST(ProgramStart, TooFewThreadsAreSaid) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has threads of its own";
  // The limit is on all that a user runs, and not on root: a user who runs
  // nothing else.
  const auto with = [](int threads, const Command& flags) {
    return Attnd({"/usr/bin/timeout", "--signal=KILL", "60", "/usr/bin/prlimit",
                  absl::StrCat("--nproc=", threads), "/usr/bin/setpriv",
                  absl::StrCat("--reuid=", 20'000 + getpid() % 40'000),
                  "--clear-groups"},
                 flags);
  };
  if (RunProgram(with(1000, {"--version"})).exit_status != 0) {
    GTEST_SKIP() << "cannot run attnd as another user: "
                 << RunProgram(with(1000, {"--version"})).output;
  }
  for (int threads = 1;; threads += 1 + threads / 8) {
    // --port_file: whoever starts ends at once, as it may not write there.
    const Ran ran =
        RunProgram(with(threads, {"--threads=2", "--metrics_port=0",
                                  "--port_file=/no/such/folder/port"}));
    ASSERT_EQ(ran.exit_status, 1) << threads << " threads: " << ran.output;
    if (absl::StrContains(ran.output, "--port_file")) {
      EXPECT_GT(threads, 10);
      return;
    }
    EXPECT_TRUE(absl::StrContains(ran.output, "cannot start"))
        << threads << " threads: " << ran.output;
  }
}

TEST(ProgramStart, FewDescriptorsMakeFewConnections) {
  // Whoever starts ends at once, as it may not write there.
  const auto with = [](const std::string& limit) {
    return RunProgram(Attnd({"/usr/bin/prlimit", "--nofile=" + limit},
                            {"--port_file=/no/such/folder/port"}));
  };
  Ran ran = with("160:160");
  EXPECT_TRUE(absl::StrContains(ran.output,
                                "instead of 1024, as the process "
                                "may have only 160 descriptors"))
      << ran.output;
  EXPECT_TRUE(absl::StrContains(ran.output, "--port_file")) << ran.output;
  // A soft limit alone is raised.
  ran = with("64:2048");
  EXPECT_FALSE(absl::StrContains(ran.output, "instead of")) << ran.output;
  EXPECT_TRUE(absl::StrContains(ran.output, "--port_file")) << ran.output;
  ran = with("32:32");
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_TRUE(absl::StrContains(
      ran.output, "for a single connection the process may have only 32"))
      << ran.output;
}

// A datagram that comes within kHangLimit, or nothing.
std::string Receive(int socket) {
  pollfd ready = {socket, POLLIN, 0};
  char bytes[256];
  if (poll(&ready, 1, absl::ToInt64Milliseconds(kHangLimit)) != 1) return "";
  const ssize_t n = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  return n < 0 ? "" : std::string(bytes, n);
}

TEST(ProgramStart, TheServiceManagerIsToldOfBothEnds) {
  const TempFolder folder;
  const std::string path = folder.File("notify");
  const Descriptor manager(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(manager.get(), reinterpret_cast<sockaddr*>(&address),
                 sizeof(address)),
            0);
  ASSERT_EQ(setenv("NOTIFY_SOCKET", path.c_str(), 1), 0);
  const auto process = ServerProcess::Start(ATTND_BINARY, {"--drain_time=90s"});
  ASSERT_EQ(unsetenv("NOTIFY_SOCKET"), 0);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(Receive(manager.get()), "READY=1");
  (*process)->Signal(SIGTERM);
  const std::string end = Receive(manager.get());
  EXPECT_TRUE(absl::StartsWith(end, "STOPPING=1\n")) << end;
  EXPECT_TRUE(absl::StrContains(end, "1m30s")) << end;
  EXPECT_EQ((*process)->Wait(), 0);
}

TEST(ProgramStart, AServiceManagerThatIsGoneStopsNothing) {
  ASSERT_EQ(setenv("NOTIFY_SOCKET", "/no/such/socket", 1), 0);
  const auto process = ServerProcess::Start(ATTND_BINARY);
  ASSERT_EQ(unsetenv("NOTIFY_SOCKET"), 0);
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE((*process)->AwaitLog("NOTIFY_SOCKET=/no/such/socket: "));
  (*process)->Signal(SIGTERM);
  EXPECT_EQ((*process)->Wait(), 0);
}

}  // namespace
}  // namespace attnd::testing
