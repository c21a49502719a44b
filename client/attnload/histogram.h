#ifndef ATTND_CLIENT_ATTNLOAD_HISTOGRAM_H_
#define ATTND_CLIENT_ATTNLOAD_HISTOGRAM_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace attnd::attnload {

// Durations in buckets that are at most 1/128 of their value wide, from 1 ns
// to 292 years: any run fits in 60 KiB, and quantiles are within 0.8 %.
class Histogram {
 public:
  // Below 0 counts as 0.
  void Record(absl::Duration value);

  int64_t count() const { return count_; }
  absl::Duration max() const { return absl::Nanoseconds(max_); }
  absl::Duration mean() const;
  // The smallest recorded value with at least `share` of all at or below it,
  // rounded up within its bucket, never above max(). Zero when empty.
  absl::Duration Quantile(double share) const;

 private:
  static size_t Bucket(uint64_t ns);
  static uint64_t LastOf(size_t bucket);

  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_HISTOGRAM_H_
