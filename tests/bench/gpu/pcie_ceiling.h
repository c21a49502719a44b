#ifndef ATTND_TESTS_BENCH_GPU_PCIE_CEILING_H_
#define ATTND_TESTS_BENCH_GPU_PCIE_CEILING_H_

// What copies between host and GPU can reach: the ceiling of a service that
// moves the same bytes. To be measured in the same run as that service.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace attnd::bench {

// Where the host's bytes lie.
enum class HostKind {
  kAllocated,  // memory from cudaHostAlloc
  kMemfd,      // a memfd, pinned in pieces as regions are
};

struct PcieLoad {
  HostKind memory = HostKind::kAllocated;
  int device = 0;
  // What each round moves, one of which may be 0. Both at the same time.
  int64_t up_bytes = int64_t{48} << 20;
  int64_t down_bytes = int64_t{16} << 20;
  // Pairs of streams, each with memory of its own and its own rounds.
  int pairs = 4;
  absl::Duration time = absl::Seconds(1);

  // INVALID_ARGUMENT naming the field.
  absl::Status Validate() const;
};

struct PcieRates {
  int64_t rounds = 0;  // of all pairs
  double seconds = 0;  // that they took
  double up_gb_s = 0;  // 10^9 bytes
  double down_gb_s = 0;
  double gb_s = 0;  // both ways
  // What a round takes with nothing beside it, up and then down on one stream
  // and waited for: the median.
  double alone_seconds = 0;
};
absl::StatusOr<PcieRates> MeasurePcie(const PcieLoad& load);

// One object, on one line.
std::string ToJson(const PcieLoad& load, const PcieRates& rates);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PCIE_CEILING_H_
