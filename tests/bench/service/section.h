#ifndef ATTND_TESTS_BENCH_SERVICE_SECTION_H_
#define ATTND_TESTS_BENCH_SERVICE_SECTION_H_

// What service_bench's sections measure, and the bars that they are held to.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/integration/process.h"

namespace attnd::bench {

// Rows of "what, seen, bar, verdict", printed as they come.
class Table {
 public:
  // Above or below `bar` it is a miss.
  void AtMost(absl::string_view what, absl::Duration seen, absl::Duration bar);
  void AtMost(absl::string_view what, double seen, double bar,
              absl::string_view unit = "");
  void AtLeast(absl::string_view what, absl::Duration seen, absl::Duration bar);
  void AtLeast(absl::string_view what, double seen, double bar,
               absl::string_view unit = "");
  void Within(absl::string_view what, double seen, double low, double high);
  // What is either so or a miss; `seen` says how it is.
  void Holds(absl::string_view what, absl::string_view seen, bool ok);

  int misses() const { return misses_; }

 private:
  void Row(absl::string_view what, const std::string& seen,
           const std::string& bar, bool ok);

  int misses_ = 0;
};

struct Section {
  const char* name;   // of --only
  const char* title;  // what it shows
  void (*run)(Table& table);
};

// Memory and counters of an attnd under 20,000 mixed requests.
void Soak(Table& table);
// Requests near the memory limit.
void Large(Table& table);
// Whether Soak would notice a leak.
void Leak(Table& table);
// Who gets how much of a device that all want.
void Fairness(Table& table);
// Small requests beside ones of two seconds.
void Small(Table& table);
// Others' calls beside a request that takes minutes.
void Slices(Table& table);
// From a cancel to a lane that is free.
void Cancel(Table& table);
// How soon a server is gone after SIGTERM.
void Drain(Table& table);
// How soon calls to a server that is stopped end.
void Stopped(Table& table);
// Connections beyond descriptors and limits.
void ManyConnections(Table& table);
// What attnload's open loop shows of a stall.
void Stall(Table& table);
// Prometheus' scrapes beside peers that are slow.
void Scrape(Table& table);

// The value, or the end of the program: a benchmark has nothing else to do.
void Require(const absl::Status& status);
template <typename T>
T Get(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}
std::unique_ptr<testing::ServerProcess> StartAttnd(
    const std::vector<std::string>& flags, int log = -1);

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SERVICE_SECTION_H_
