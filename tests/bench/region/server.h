#ifndef ATTND_TESTS_BENCH_REGION_SERVER_H_
#define ATTND_TESTS_BENCH_REGION_SERVER_H_

// The attnd that a section measures.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/peer_process.h"
#include "tests/bench/region/section.h"
#include "tests/integration/process.h"

namespace attnd::bench {

// The one that runs already, or a new one. Ends the process on an error.
class MeasuredServer {
 public:
  // `flags`: of a new one, beside those that every one gets.
  MeasuredServer(const RegionBenchOptions& options,
                 std::vector<std::string> flags);

  const std::string& target() const { return target_; }
  const std::string& region_socket() const { return region_socket_; }
  double CpuSeconds() const { return CpuSecondsOf(pid_); }
  testing::Usage usage() const { return testing::UsageOf(pid_); }
  // Of Prometheus' text format.
  double Metric(const std::string& series) const;
  // Waits until the series has the value.
  void AwaitMetric(const std::string& series, double value) const;

 private:
  const testing::TempFolder folder_;
  std::unique_ptr<testing::ServerProcess> own_;
  std::string target_, region_socket_;
  pid_t pid_ = 0;
  int metrics_port_ = -1;
};

// A server in a process of its own that has one region, and whose device only
// copies.
class CopyingServer {
 public:
  explicit CopyingServer(int64_t region_bytes);

  std::string target() const { return "unix:" + folder_.File("socket"); }
  std::string region_socket() const { return folder_.File("regions"); }
  double CpuSeconds() const { return process_.CpuSeconds(); }

 private:
  const testing::TempFolder folder_;
  PeerProcess process_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_REGION_SERVER_H_
