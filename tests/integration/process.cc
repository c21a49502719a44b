#include "tests/integration/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/integration/http_get.h"

namespace attnd::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<char*> Arguments(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& part : command) {
    arguments.push_back(const_cast<char*>(part.c_str()));
  }
  arguments.push_back(nullptr);
  return arguments;
}

// In a child: only what is safe after fork in a threaded process.
[[noreturn]] void Execute(const std::vector<char*>& arguments, int in, int out,
                          pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  if (in >= 0) dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

int ExitStatus(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Usage UsageOf(pid_t pid) {
  Usage usage;
  const std::string folder = absl::StrCat("/proc/", pid);
  for (absl::string_view line :
       absl::StrSplit(ReadFile(folder + "/status"), '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    int64_t value = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &value)) continue;
    if (words[0] == "VmRSS") usage.resident_bytes = value << 10;
    if (words[0] == "VmHWM") usage.peak_resident_bytes = value << 10;
  }
  const std::string own_name = ReadFile(folder + "/comm");
  std::error_code ignored;
  for (const auto& task :
       std::filesystem::directory_iterator(folder + "/task", ignored)) {
    ++usage.all_threads;
    usage.threads += ReadFile(task.path() / "comm") == own_name;
  }
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(folder + "/fd", ignored)) {
    ++usage.descriptors;
  }
  return usage;
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::string& binary, const std::vector<std::string>& flags, int log) {
  std::unique_ptr<ServerProcess> process(new ServerProcess);
  const TempFolder& folder = process->folder_;
  std::vector<std::string> command = {binary,
                                      "--port_file=" + folder.File("port")};
  // What tests expect of a server must not depend on the machine's devices.
  for (const std::string& otherwise :
       {std::string("--port=0"), std::string("--device=cpu"),
        "--unix_socket=" + folder.File("socket")}) {
    const std::string name = otherwise.substr(0, otherwise.find('=') + 1);
    if (std::none_of(flags.begin(), flags.end(), [&](const std::string& flag) {
          return absl::StartsWith(flag, name);
        })) {
      command.push_back(otherwise);
    }
  }
  command.insert(command.end(), flags.begin(), flags.end());
  const std::vector<char*> arguments = Arguments(command);
  const int own_log = open(folder.File("log").c_str(),
                           O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  const pid_t parent = getpid();
  process->pid_ = fork();
  if (process->pid_ == 0) {
    Execute(arguments, -1, log >= 0 ? log : own_log, parent);
  }
  close(own_log);
  process->pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, process->pid_, 0));

  const absl::Time deadline = absl::Now() + kHangLimit;
  int port = 0;
  // The file appears whole; there is nothing to wait on for that but the
  // process' end.
  while (!absl::SimpleAtoi(ReadFile(folder.File("port")), &port)) {
    if (process->Wait(absl::Milliseconds(5)).has_value() ||
        absl::Now() > deadline) {
      return absl::UnavailableError(
          absl::StrCat(binary, " does not listen:\n", process->log()));
    }
  }
  constexpr absl::string_view kHost = "--host=";
  std::string host = "127.0.0.1";
  for (const std::string& flag : flags) {
    if (absl::StartsWith(flag, kHost)) host = flag.substr(kHost.size());
  }
  process->tcp_ = absl::StrCat(host, ":", port);
  return process;
}

ServerProcess::~ServerProcess() {
  if (!exit_.has_value() && pid_ > 0) {
    Signal(SIGKILL);
    (void)Wait(absl::InfiniteDuration());
  }
  if (pidfd_ >= 0) close(pidfd_);
}

std::string ServerProcess::unix_socket() const {
  return "unix:" + folder_.File("socket");
}

std::string ServerProcess::log() const { return ReadFile(folder_.File("log")); }

// The number that follows `text` in `log`, or -1.
static int NumberAfter(const std::string& text, const std::string& log) {
  const size_t at = log.find(text);
  if (at == std::string::npos) return -1;
  return std::atoi(log.c_str() + at + text.size());
}

int ServerProcess::metrics_port() const {
  return NumberAfter("metrics on http://127.0.0.1:", log());
}

int ServerProcess::admin_port() const {
  return NumberAfter("admin on 127.0.0.1:", log());
}

std::string ServerProcess::Metrics() const {
  const int port = metrics_port();
  return port < 0 ? "" : HttpGet(port, "/metrics");
}

double ServerProcess::Metric(const std::string& series) const {
  return MetricValue(Metrics(), series).value_or(-1);
}

bool ServerProcess::AwaitLog(const std::string& text) const {
  return Eventually([&] { return absl::StrContains(log(), text); });
}

// Once it has been waited for, its number may be another process'.
void ServerProcess::Signal(int signal) const {
  if (!exit_.has_value()) kill(pid_, signal);
}

void ServerProcess::Stop() const {
  Signal(SIGSTOP);
  if (exit_.has_value()) return;
  // What it waits for stays to be waited for: another Stop, and Wait.
  siginfo_t info;
  while (waitid(P_PID, pid_, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
}

void ServerProcess::Continue() const { Signal(SIGCONT); }

std::optional<int> ServerProcess::Wait(absl::Duration timeout) {
  if (exit_.has_value()) return exit_;
  pollfd ended = {pidfd_, POLLIN, 0};
  const int milliseconds =
      timeout == absl::InfiniteDuration()
          ? -1
          : static_cast<int>(absl::ToInt64Milliseconds(timeout));
  if (poll(&ended, 1, milliseconds) != 1) return std::nullopt;
  int status = 0;
  waitpid(pid_, &status, 0);
  exit_ = ExitStatus(status);
  return exit_;
}

Ran RunProgram(const std::vector<std::string>& command,
               const std::string& input) {
  TempFolder folder;
  std::ofstream(folder.File("in")) << input;
  const int in = open(folder.File("in").c_str(), O_RDONLY | O_CLOEXEC);
  const int out = open(folder.File("out").c_str(),
                       O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  const std::vector<char*> arguments = Arguments(command);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Execute(arguments, in, out, parent);
  int status = 0;
  waitpid(pid, &status, 0);
  close(in);
  close(out);
  return {ExitStatus(status), ReadFile(folder.File("out"))};
}

}  // namespace attnd::testing
