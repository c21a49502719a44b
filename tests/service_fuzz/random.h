#ifndef ATTND_TESTS_SERVICE_FUZZ_RANDOM_H_
#define ATTND_TESTS_SERVICE_FUZZ_RANDOM_H_

// What a generator draws from.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

namespace attnd::fuzz {

class Random {
 public:
  Random(uint64_t seed, uint64_t index) {
    std::seed_seq words{
        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
        static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)};
    bits_.seed(words);
  }

  // Both ends included.
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(bits_);
  }
  double Real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(bits_);
  }
  bool Chance(double p) { return Real(0, 1) < p; }
  double Normal() { return normal_(bits_); }
  double Sign() { return Chance(0.5) ? 1 : -1; }
  // Log-uniform over powers of 10.
  double Magnitude(double low, double high) {
    return std::pow(10.0, Real(low, high));
  }
  template <class T, size_t n>
  const T& Of(const T (&values)[n]) {
    return values[Int(0, n - 1)];
  }

 private:
  std::mt19937_64 bits_;
  std::normal_distribution<double> normal_;
};

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_RANDOM_H_
