#include "tests/bench/security/haproxy.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

constexpr char kProgram[] = "/usr/sbin/haproxy";
// The one that it inherits.
constexpr int kListener = 3;

// Listens, so that nobody who connects before HAProxy runs is refused.
Descriptor Listen(int& port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    Require(absl::ErrnoToStatus(errno, "a port for HAProxy"));
  }
  port = ntohs(at.sin_port);
  return fd;
}

// deploy/haproxy.cfg, but that it takes what is in clear.
std::string InClear() {
  std::ifstream file(ATTND_HAPROXY_CFG);
  std::ostringstream config;
  int replaced = 0;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "  bind ")) {
      line = "  bind \"${ATTND_FRONT}\" proto h2";
      ++replaced;
    }
    config << line << '\n';
  }
  if (replaced != 1) Require(absl::InternalError(ATTND_HAPROXY_CFG));
  return config.str();
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

bool Haproxy::IsInstalled() { return access(kProgram, X_OK) == 0; }

Haproxy::Haproxy(const std::string& socket, const std::string& bundle)
    : listener_(Listen(port_)) {
  std::string config = ATTND_HAPROXY_CFG;
  if (bundle.empty()) {
    config = folder_.File("haproxy.cfg");
    std::ofstream(config) << InClear();
  }
  std::vector<std::string> arguments = {kProgram, "-q", "-db", "-f", config};
  std::vector<std::string> environment = {
      absl::StrCat("ATTND_FRONT=fd@", kListener),
      absl::StrCat("ATTND_FRONT_CERTIFICATE=", bundle),
      absl::StrCat("ATTND_FRONT_SERVER=unix@", socket)};
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) Execute(listener_.get(), argv.data(), envp.data(), parent);
  if (pid_ < 0) Require(absl::ErrnoToStatus(errno, "HAProxy"));
}

Haproxy::~Haproxy() {
  kill(pid_, SIGTERM);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace attnd::bench
