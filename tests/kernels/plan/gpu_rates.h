#ifndef ATTND_TESTS_KERNELS_PLAN_GPU_RATES_H_
#define ATTND_TESTS_KERNELS_PLAN_GPU_RATES_H_

#include "kernels/device_rates.h"

namespace attnd::plan {

// Of a GPU with links of its own, in round figures: what follows from them does
// not change with what is measured on any.
inline DeviceRates RoundGpuRates() {
  DeviceRates rates;
  rates.processors = 100;
  rates.forward = {.flops = 600e12, .tile_seconds = 2e-6};
  rates.backward = {.flops = 500e12, .tile_seconds = 4e-6};
  rates.forward.launch_seconds = rates.backward.launch_seconds =
      rates.decode.launch_seconds = 5e-6;
  rates.memory_bytes = 3e12;
  rates.team_seconds = 50e-6;
  rates.step_seconds = 5e-6;
  rates.upload = rates.download = {.seconds = 10e-6, .bytes = 50e9};
  rates.pull = {.seconds = 15e-6, .bytes = 400e9};
  return rates;
}

}  // namespace attnd::plan

#endif  // ATTND_TESTS_KERNELS_PLAN_GPU_RATES_H_
