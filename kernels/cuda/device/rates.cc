#include "kernels/cuda/device/rates.h"

namespace attnd::cuda {

DeviceRates NominalRates(const Gpu& gpu) {
  const double processors = gpu.multiprocessors;
  DeviceRates rates;
  rates.processors = processors;
  // Of a multiprocessor: Hopper's kernels, at 128 dims on an H200 at its limit
  // of power, and those for any GPU on an H100.
  if (gpu.is_hopper()) {
    rates.forward = {.flops = 6.1e12 * processors,
                     .pair_flops = 120,
                     .tile_seconds = 2.4e-6};
    rates.backward = {.flops = 5.4e12 * processors,
                      .pair_flops = 300,
                      .tile_seconds = 4.0e-6};
  } else {
    rates.forward = {.flops = 2.4e12 * processors, .tile_seconds = 2e-6};
    rates.backward = {.flops = 1.8e12 * processors, .tile_seconds = 4e-6};
  }
  rates.deterministic = 1.1;
  rates.f32 = 16;  // products on the FMA units
  rates.launch_seconds = 6e-6;
  rates.memory_bytes = 3e12;
  rates.team_seconds = 50e-6;
  rates.step_seconds = 6e-6;
  rates.copy_seconds = 3e-6;
  rates.upload = rates.download = {.seconds = 10e-6, .bytes = 54e9};
  rates.pull = {.seconds = 14e-6, .bytes = 390e9};
  return rates;
}

}  // namespace attnd::cuda
