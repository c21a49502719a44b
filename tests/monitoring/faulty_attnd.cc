// attnd with devices that break or hang when they are told to, as no processor
// does. They compute nothing. --device=cpu*N has N of them, without a team.
//
// ATTND_FAULTS names a folder: once it has a file "break.I", device I answers
// the next group with a fault, and while it has "hang.I" that device's kernels
// do not end.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/program/program.h"
#include "tests/server/fakes/identity_backend.h"

namespace {

using attnd::Backend;
using attnd::server::IdentityBackend;

class FaultyBackend final : public IdentityBackend {
 public:
  FaultyBackend(const std::string& folder, int index)
      : IdentityBackend(index),
        break_file_(absl::StrCat(folder, "/break.", index)),
        hang_file_(absl::StrCat(folder, "/hang.", index)) {}

  absl::Status On(Stage stage, Group group) override {
    if (stage != Stage::kRun) return absl::OkStatus();
    const auto cancelled = [](const attnd::Problem* problem) {
      return problem->cancel != nullptr && problem->cancel->cancelled();
    };
    while (IsThere(hang_file_) &&
           !std::all_of(group.begin(), group.end(), cancelled)) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return IsThere(break_file_) ? absl::InternalError("the device has broken")
                                : absl::OkStatus();
  }

 private:
  static bool IsThere(const std::string& file) {
    return access(file.c_str(), F_OK) == 0;
  }

  const std::string break_file_, hang_file_;
};

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> CreateDevices(
    const attnd::server::DeviceOptions& options) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* folder = std::getenv("ATTND_FAULTS");
  if (folder == nullptr) {
    return absl::InvalidArgumentError("ATTND_FAULTS is not set");
  }
  std::vector<std::unique_ptr<Backend>> devices;
  for (int i = 0; i < options.cpus; ++i) {
    devices.push_back(std::make_unique<FaultyBackend>(folder, i));
  }
  return devices;
}

}  // namespace

int main(int argc, char** argv) {
  return attnd::server::RunProgram(argc, argv, CreateDevices);
}
