#include "tests/bench/cpu/fma_peak.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/cpu/targets.h"
#include "tests/bench/clock.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/cpu/fma_peak.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that it compiles once per target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As many chains as hide an instruction's latency and fit 16 registers.
float MultiplyAdd() {
  using D = hn::CappedTag<float, 16>;
  constexpr int kChains = 12;
  const D d;
  hn::Vec<D> sum[kChains];
  for (int c = 0; c < kChains; ++c) {
    sum[c] = hn::Set(d, static_cast<float>(c));
  }
  // Towards 1, so that nothing grows without bound or becomes subnormal.
  const auto factor = hn::Set(d, 0.5f), term = hn::Set(d, 0.5f);
  const auto steps = static_cast<int64_t>(
      kFmaFlops / (2.0 * kChains * static_cast<double>(hn::Lanes(d))));
  for (int64_t i = 0; i < steps; ++i) {
    HWY_UNROLL(12)
    for (int c = 0; c < kChains; ++c) {
      sum[c] = hn::MulAdd(sum[c], factor, term);
    }
  }
  for (int c = 1; c < kChains; ++c) sum[0] = hn::Add(sum[0], sum[c]);
  return hn::GetLane(hn::SumOfLanes(d, sum[0]));
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attnd::bench {

HWY_EXPORT(MultiplyAdd);

double FmaPeakSeconds(int threads) {
  std::vector<float> sums(threads);
  return Time([&] {
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back(
          [&sums, t] { sums[t] = HWY_DYNAMIC_DISPATCH(MultiplyAdd)(); });
    }
    for (std::thread& worker : workers) worker.join();
  });
}

}  // namespace attnd::bench
#endif  // HWY_ONCE
