#ifndef ATTND_CLIENT_ATTNLOAD_REPORT_H_
#define ATTND_CLIENT_ATTNLOAD_REPORT_H_

// Results for people and for programs.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/attnload/recorder.h"
#include "client/attnload/shape.h"

namespace attnd::attnload {

struct LevelResults {
  bool open_loop = false;
  double level = 0;
  Results results;
};

// The regions that the tensors lay in.
struct LeasedRegions {
  int64_t leases = 0;  // 0: they lay in none
  int64_t bytes = 0;
  bool on_device = false;  // of a GPU's memory
};

// One line while a level runs.
std::string ProgressLine(bool open_loop, double level, const Results& results,
                         int64_t in_flight, absl::Duration since);

// One row a level; then each shape's, errors by code, and the check.
std::string Table(const std::vector<Shape>& shapes,
                  const std::vector<LevelResults>& levels,
                  const LeasedRegions& regions = {});

// The same and more as one JSON object; times in seconds.
std::string Json(const std::string& target, const std::vector<Shape>& shapes,
                 const std::vector<LevelResults>& levels,
                 const LeasedRegions& regions = {});

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_REPORT_H_
