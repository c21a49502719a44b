#ifndef ATTND_SERVER_TELEMETRY_LINE_LIMIT_H_
#define ATTND_SERVER_TELEMETRY_LINE_LIMIT_H_

// How much of a log one cause may fill.

#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace attnd::server {

// Bytes that come back at a steady rate.
class ByteBudget {
 public:
  ByteBudget(double most, double bytes_per_second)
      : most_(most), bytes_per_second_(bytes_per_second), left_(most) {}

  bool Has(size_t bytes, absl::Time now);
  void Take(size_t bytes) { left_ -= static_cast<double>(bytes); }

 private:
  double most_;
  double bytes_per_second_;
  double left_;
  absl::Time at_ = absl::InfinitePast();
};

// For lines that say what clients did, but not which: of one part of the server
// at most 9 KiB in any second, so no client causes more, and at most 4 KiB from
// one place in the code, so that one kind of line leaves room for the others.
// Each part that writes such lines has its own: calls, connections' ends,
// refused connections, and libraries. Time comes from outside. Not thread-safe.
class LineLimit {
 public:
  // A line of the source, `file` a string literal.
  using Place = std::pair<const char*, int>;

  // Whether a line of so many bytes may be written now.
  bool Allows(Place place, size_t bytes, absl::Time now);

 private:
  ByteBudget all_{5 << 10, 4 << 10};
  // As many as the code has places that log.
  absl::flat_hash_map<Place, ByteBudget> places_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_LINE_LIMIT_H_
