#include "tests/bench/cpu/machine_peers.h"

#include <cblas.h>

#include <cstdint>
#include <random>
#include <thread>

#include "tests/bench/clock.h"

namespace attnd::bench {
namespace {

std::vector<float> Random() {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(Sgemm::kSize * Sgemm::kSize);
  for (float& v : x) v = normal(random);
  return x;
}

}  // namespace

Sgemm::Sgemm(int threads) : a_(Random()), b_(Random()), c_(Random()) {
  openblas_set_num_threads(threads);
}

double Sgemm::Run() {
  return Time([&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize,
                1, a_.data(), kSize, b_.data(), kSize, 0, c_.data(), kSize);
  });
}

double SumSeconds(const ConstTensorView& view, double bytes, int threads) {
  const auto* words = static_cast<const uint64_t*>(view.data);
  const auto count = static_cast<int64_t>(bytes / sizeof(uint64_t));
  std::vector<uint64_t> sums(threads);
  const auto add = [&](int t) {
    uint64_t sum = 0;
    for (int64_t i = t * count / threads; i < (t + 1) * count / threads; ++i) {
      sum += words[i];
    }
    sums[t] = sum;
  };
  const double seconds = Time([&] {
    std::vector<std::thread> workers;
    for (int t = 1; t < threads; ++t) workers.emplace_back(add, t);
    add(0);
    for (std::thread& worker : workers) worker.join();
  });
  volatile uint64_t used = 0;
  for (uint64_t sum : sums) used = used + sum;
  return seconds;
}

}  // namespace attnd::bench
