#include "tests/emulation/runtime.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <utility>

#include "kernels/cuda/launch/descriptor.h"
#include "tests/emulation/launch.h"
#include "tests/emulation/tensor_map.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd::emulation {
namespace {

using cuda::LaunchParams;

struct Launches {
  uint64_t seed = 0;
  absl::Status error;
};
Launches& TheLaunches() {
  static auto* const launches = new Launches;
  return *launches;
}

void Run(const Grid& grid, const void* function, const LaunchParams& params) {
  Launches& launches = TheLaunches();
  if (!launches.error.ok()) return;
  const auto kernel = reinterpret_cast<void (*)(LaunchParams)>(
      reinterpret_cast<uintptr_t>(function));
  launches.error =
      Launch(grid, launches.seed++, [kernel, &params] { kernel(params); });
}

}  // namespace

// Seeds side by side share no launch.
void SeedLaunches(uint64_t seed) { TheLaunches().seed = seed << 16; }

absl::Status TakeLaunchError() {
  return std::exchange(TheLaunches().error, absl::OkStatus());
}

}  // namespace attnd::emulation

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int) {
  return function == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                const void* function, void** arguments) {
  using attnd::cuda::LaunchParams;
  attnd::emulation::Grid grid{config->gridDim.x, config->blockDim.x,
                              config->dynamicSmemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      grid.cluster = attribute.val.clusterDim.x;
    }
  }
  const auto params = std::make_shared<const LaunchParams>(
      *static_cast<const LaunchParams*>(arguments[0]));
  attnd::testing::EnqueueFake(config->stream, [grid, function, params] {
    attnd::emulation::Run(grid, function, *params);
  });
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* found) {
  if (std::strcmp(symbol, "cuTensorMapEncodeTiled") != 0) {
    *found = cudaDriverEntryPointSymbolNotFound;
    return cudaErrorSymbolNotFound;
  }
  *function =
      reinterpret_cast<void*>(&attnd::emulation::attnd_emulation_encode_tiled);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"
