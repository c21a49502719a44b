#include "tests/integration/haproxy.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace attnd::testing {
namespace {

constexpr char kProgram[] = "/usr/sbin/haproxy";
// The one that it inherits.
constexpr int kListener = 3;

absl::StatusOr<Descriptor> Listen(int& port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    return absl::ErrnoToStatus(errno, "a port for HAProxy");
  }
  port = ntohs(at.sin_port);
  return fd;
}

// deploy/haproxy.cfg, but that it takes what is in clear.
absl::StatusOr<std::string> InClear() {
  std::ifstream file(ATTND_HAPROXY_CFG);
  std::string config;
  int replaced = 0;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "  bind ")) {
      line = "  bind \"${ATTND_FRONT}\" proto h2";
      ++replaced;
    }
    absl::StrAppend(&config, line, "\n");
  }
  if (replaced != 1) return absl::InternalError(ATTND_HAPROXY_CFG);
  return config;
}

// In a child: only what is safe after fork in a threaded process.
[[noreturn]] void Execute(int listener, char* const* arguments,
                          char* const* environment, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent || dup2(listener, kListener) < 0) _exit(127);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string Haproxy::Find() {
  return access(kProgram, X_OK) == 0 ? kProgram : "";
}

absl::StatusOr<std::unique_ptr<Haproxy>> Haproxy::Start(
    const std::string& socket, const std::string& bundle) {
  if (Find().empty()) return absl::NotFoundError("no HAProxy is installed");
  std::unique_ptr<Haproxy> haproxy(new Haproxy);
  absl::StatusOr<Descriptor> listener = Listen(haproxy->port_);
  if (!listener.ok()) return listener.status();
  haproxy->listener_ = *std::move(listener);
  std::string config = ATTND_HAPROXY_CFG;
  if (bundle.empty()) {
    absl::StatusOr<std::string> in_clear = InClear();
    if (!in_clear.ok()) return in_clear.status();
    config = haproxy->folder_.File("haproxy.cfg");
    std::ofstream(config) << *in_clear;
  }
  std::vector<std::string> arguments = {kProgram, "-q", "-db", "-f", config};
  std::vector<std::string> environment = {
      absl::StrCat("ATTND_FRONT=fd@", kListener),
      absl::StrCat("ATTND_FRONT_CERTIFICATE=", bundle),
      absl::StrCat("ATTND_FRONT_SERVER=unix@", socket)};
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  haproxy->pid_ = fork();
  if (haproxy->pid_ == 0) {
    Execute(haproxy->listener_.get(), argv.data(), envp.data(), parent);
  }
  if (haproxy->pid_ < 0) return absl::ErrnoToStatus(errno, "HAProxy");
  return haproxy;
}

Haproxy::~Haproxy() {
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace attnd::testing
