#ifndef ATTND_TESTS_INTEGRATION_PROCESS_H_
#define ATTND_TESTS_INTEGRATION_PROCESS_H_

// attnd, or another server program, as a process of its own.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/hang_limit.h"
#include "tests/temp_folder.h"

namespace attnd::testing {

// Sanitizers take memory and time of their own: bounds on either say nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// What /proc says of a process.
struct Usage {
  int64_t resident_bytes = 0;
  int64_t peak_resident_bytes = 0;
  // Those of the process' own name. gRPC names the threads of its five pools
  // otherwise; it adds them under load, up to two a processor each, and keeps
  // them.
  int threads = 0;
  int all_threads = 0;
  int descriptors = 0;
};

Usage UsageOf(pid_t pid);

class ServerProcess {
 public:
  // Starts `binary --port_file=... flags...`, with --port=0, --device=cpu and a
  // --unix_socket unless `flags` have others, and returns once it listens.
  // Its stderr is `log`, if that is a descriptor; log() is empty then.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::string& binary, const std::vector<std::string>& flags = {},
      int log = -1);
  // Kills it if it still runs.
  ~ServerProcess();

  pid_t pid() const { return pid_; }
  std::string tcp() const { return tcp_; }  // "127.0.0.1:1234"
  std::string unix_socket() const;          // "unix:/...", unless in `flags`
  std::string log() const;                  // its stderr so far
  Usage usage() const { return UsageOf(pid_); }
  int metrics_port() const;  // -1: none
  int admin_port() const;    // -1: none, or its line is not in the log yet
  // What it says to Prometheus; it was started with --metrics_port=0.
  std::string Metrics() const;
  // One series of that, or -1.
  double Metric(const std::string& series) const;
  // Waits until the log contains `text`; false after kHangLimit.
  bool AwaitLog(const std::string& text) const;

  void Signal(int signal) const;
  // SIGSTOP, and until every thread has stopped: the signal alone says nothing
  // of when, and on busy cores the others go on serving meanwhile.
  void Stop() const;
  void Continue() const;
  // Its exit status (128 + signal when killed), or nothing by `timeout`.
  std::optional<int> Wait(absl::Duration timeout = kHangLimit);

 private:
  ServerProcess() = default;

  TempFolder folder_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<int> exit_;
  std::string tcp_;
};

// Runs a program to its end; its exit status and all that it wrote.
struct Ran {
  int exit_status = -1;
  std::string output;
};
Ran RunProgram(const std::vector<std::string>& command,
               const std::string& input = "");

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_PROCESS_H_
