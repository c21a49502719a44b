#ifndef ATTND_TESTS_BENCH_PEER_PROCESS_H_
#define ATTND_TESTS_BENCH_PEER_PROCESS_H_

// The other process of a benchmark: this same program, or an older build of it,
// started in a server's role.

#include <sys/types.h>

#include <string>
#include <vector>

namespace attnd::bench {

inline constexpr char kThisProgram[] = "/proc/self/exe";

// In the child: tells the parent the port, then returns when the parent is
// done with it or gone.
void ServeUntilParentIsDone(int port);

// What a process' threads, also those that have ended, have had of processors.
double CpuSecondsOf(pid_t pid);

// In the parent. Ends the process on any failure to start it: a benchmark has
// nothing else to do.
class PeerProcess {
 public:
  // Runs `program`, this one unless said otherwise, with `arguments` and waits
  // until it says its port.
  explicit PeerProcess(std::vector<std::string> arguments,
                       std::string program = kThisProgram);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  pid_t pid() const { return pid_; }
  double CpuSeconds() const { return CpuSecondsOf(pid_); }

 private:
  pid_t pid_ = -1;
  int to_child_ = -1;
  int port_ = 0;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_PEER_PROCESS_H_
