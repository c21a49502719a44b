#include "tests/bench/peer_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

extern char** environ;

namespace attnd::bench {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

}  // namespace

void ServeUntilParentIsDone(int port) {
  std::printf("%d\n", port);
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
}

double CpuSecondsOf(pid_t pid) {
  clockid_t clock;
  timespec time = {};
  errno = clock_getcpuclockid(pid, &clock);
  if (errno != 0 || clock_gettime(clock, &time)) Die("a server's CPU clock");
  return double(time.tv_sec) + double(time.tv_nsec) / 1e9;
}

PeerProcess::PeerProcess(std::vector<std::string> arguments,
                         std::string program) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) || pipe2(from_child, O_CLOEXEC)) Die("pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  errno = posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(),
                      environ);
  if (errno != 0) Die("posix_spawn");
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  to_child_ = to_child[1];
  FILE* said = fdopen(from_child[0], "r");
  if (std::fscanf(said, "%d", &port_) != 1 || port_ <= 0) {
    std::fprintf(stderr, "the server process did not start\n");
    std::exit(1);
  }
  std::fclose(said);
}

PeerProcess::~PeerProcess() {
  close(to_child_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace attnd::bench
