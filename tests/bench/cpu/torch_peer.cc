#include "tests/bench/cpu/torch_peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

extern char** environ;

namespace attnd::bench {
namespace {

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "PyTorch: %s\n", what);
  std::exit(1);
}

}  // namespace

TorchPeer::TorchPeer(const std::string& python, int threads) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) || pipe2(from_child, O_CLOEXEC))
    Die("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  const std::string count = std::to_string(threads);
  const char* argv[] = {python.c_str(), "-B", ATTND_TORCH_PEER, count.c_str(),
                        nullptr};
  const int error = posix_spawnp(&pid_, python.c_str(), &actions, nullptr,
                                 const_cast<char* const*>(argv), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Die("its Python cannot be started");
  close(to_child[0]);
  close(from_child[1]);
  to_ = fdopen(to_child[1], "w");
  from_ = fdopen(from_child[0], "r");
  version_ = ReadLine();
}

TorchPeer::~TorchPeer() {
  std::fclose(to_);
  std::fclose(from_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

double TorchPeer::Run(Op op, const AttentionShape& s) {
  std::fprintf(to_, "%s %ld %ld %ld %ld %ld %d\n",
               op == Op::kForward ? "forward" : "backward", long{s.q_len},
               long{s.kv_len}, long{s.q_heads}, long{s.kv_heads}, long{s.dim},
               s.causal ? 1 : 0);
  std::fflush(to_);
  const double seconds = std::atof(ReadLine().c_str());
  if (seconds <= 0) Die("did not answer");
  return seconds;
}

std::string TorchPeer::ReadLine() {
  char line[128];
  if (std::fgets(line, sizeof(line), from_) == nullptr) Die("has ended");
  std::string text = line;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace attnd::bench
