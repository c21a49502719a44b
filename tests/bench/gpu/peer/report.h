#ifndef ATTND_TESTS_BENCH_GPU_PEER_REPORT_H_
#define ATTND_TESTS_BENCH_GPU_PEER_REPORT_H_

#include <string>

namespace attnd::bench {

// What was measured: a line "name value unit" each as it comes, and a section's
// as JSON once the section is over.
class Report {
 public:
  explicit Report(std::string section);
  ~Report() = default;
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // `name` has no spaces; a value that is not finite is printed as it is and
  // left out of JSON, which has no word for it.
  void Row(const std::string& name, double value, const char* unit);
  // A line that begins with #, for readers alone.
  static void Note(const std::string& text);

  // {"peer": SECTION, "rows": {NAME: [VALUE, UNIT], ...}}, on one line.
  std::string Json() const;

 private:
  const std::string section_;
  std::string rows_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PEER_REPORT_H_
