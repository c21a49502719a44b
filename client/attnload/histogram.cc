#include "client/attnload/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attnd::attnload {
namespace {

// Values below 2^(kBits + 1) have a bucket each; above, each power of two is
// cut into 2^kBits.
constexpr int kBits = 7;

}  // namespace

size_t Histogram::Bucket(uint64_t ns) {
  const int shift = std::max(0, int(std::bit_width(ns)) - (kBits + 1));
  return (size_t(shift) << kBits) + (ns >> shift);
}

uint64_t Histogram::LastOf(size_t bucket) {
  const size_t shift =
      bucket < (size_t{2} << kBits) ? 0 : (bucket >> kBits) - 1;
  const uint64_t mantissa = bucket - (shift << kBits);
  return ((mantissa + 1) << shift) - 1;
}

void Histogram::Record(absl::Duration value) {
  const int64_t ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(value));
  const size_t bucket = Bucket(ns);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
  ++count_;
  max_ = std::max(max_, ns);
  sum_ += double(ns);
}

absl::Duration Histogram::mean() const {
  return absl::Nanoseconds(count_ == 0 ? 0.0 : sum_ / double(count_));
}

absl::Duration Histogram::Quantile(double share) const {
  const auto rank =
      std::max<int64_t>(1, int64_t(std::ceil(share * double(count_))));
  int64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) {
      return absl::Nanoseconds(std::min<int64_t>(max_, int64_t(LastOf(i))));
    }
  }
  return absl::ZeroDuration();
}

}  // namespace attnd::attnload
