#ifndef ATTND_TESTS_BENCH_TABLE_H_
#define ATTND_TESTS_BENCH_TABLE_H_

// What a benchmark's sections print, and count.

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

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
  // What no bar is set for.
  void Shows(absl::string_view what, absl::Duration seen);
  void Shows(absl::string_view what, double seen, absl::string_view unit = "");
  // What is either so or a miss; `seen` says how it is.
  void Holds(absl::string_view what, absl::string_view seen, bool ok);

  int misses() const { return misses_; }

 private:
  void Row(absl::string_view what, const std::string& seen,
           const std::string& bar, bool ok);

  int misses_ = 0;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_TABLE_H_
