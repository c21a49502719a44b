#include "tests/bench/gpu/plan/samples.h"

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

double UnixSeconds() {
  using Clock = std::chrono::system_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

SampleFile::SampleFile(const std::string& name) {
  if (name.empty()) return;
  file_.open(name);
  if (!file_)
    Require(absl::InvalidArgumentError(absl::StrCat("--samples=", name)));
  file_ << "unix_seconds,shape,op,plan,ms,kernel_ms of each device\n";
}

void SampleFile::Add(const PlanSide::What& what, absl::string_view plan,
                     const PlanSide::Times& times) {
  if (!file_.is_open()) return;
  file_ << absl::StreamFormat("%.3f,%s,%s,%s,%.3f", UnixSeconds(),
                              what.shape.name(), OpName(what.op), plan,
                              1e3 * times.seconds);
  for (double seconds : times.kernel_seconds) {
    file_ << absl::StreamFormat(",%.3f", 1e3 * seconds);
  }
  file_ << '\n';
}

}  // namespace attnd::bench
