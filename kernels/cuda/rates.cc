#include "kernels/cuda/rates.h"

#include "kernels/cuda/fused/chunks.h"

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
                     .tile_seconds = 2.4e-6,
                     .launch_seconds = 6e-6,
                     .enqueue_seconds = 8e-6};
    rates.backward = {.flops = 5.4e12 * processors,
                      .pair_flops = 300,
                      .tile_seconds = 4.0e-6,
                      .launch_seconds = 25e-6,
                      .enqueue_seconds = 60e-6};
  } else {
    rates.forward = {.flops = 2.4e12 * processors,
                     .tile_seconds = 2e-6,
                     .launch_seconds = 6e-6,
                     .enqueue_seconds = 8e-6};
    rates.backward = {.flops = 1.8e12 * processors,
                      .tile_seconds = 4e-6,
                      .launch_seconds = 25e-6,
                      .enqueue_seconds = 60e-6};
  }
  rates.decode = {.flops = 0.87e12 * processors,
                  .launch_seconds = 6e-6,
                  .enqueue_seconds = 8e-6};
  rates.deterministic = 1.1;
  rates.turn_seconds = 2.25e-6;
  rates.shared_scratch = kSharedScratchBytes;
  rates.f32 = 16;  // products on the FMA units
  rates.memory_bytes = 4e12;
  rates.kernel_seconds = 9e-6;
  rates.team_seconds = 20e-6;
  rates.step_seconds = 2e-6;
  rates.upload = rates.download = {.seconds = 12e-6,
                                   .bytes = 48e9,
                                   .copy_seconds = 4e-6,
                                   .enqueue_seconds = 9e-6};
  rates.short_rows = 0.83;
  rates.short_row_bytes = 512;
  rates.apart_seconds = 10e-6;
  rates.pull = {.seconds = 18e-6,
                .bytes = 390e9,
                .copy_seconds = 3e-6,
                .enqueue_seconds = 5e-6};
  return rates;
}

}  // namespace attnd::cuda
