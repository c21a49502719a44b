// attnd.

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/program.h"

namespace {

absl::StatusOr<std::vector<std::unique_ptr<attnd::Backend>>> CreateDevices(
    const attnd::server::DeviceOptions& options) {
  // "auto" and "cpu" are the same while there is no other kind.
  auto cpu = attnd::CreateCpuBackend(options.cpu);
  if (!cpu.ok()) return cpu.status();
  std::vector<std::unique_ptr<attnd::Backend>> devices;
  devices.push_back(*std::move(cpu));
  return devices;
}

}  // namespace

int main(int argc, char** argv) {
  return attnd::server::RunProgram(argc, argv, CreateDevices);
}
