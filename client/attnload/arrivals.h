#ifndef ATTND_CLIENT_ATTNLOAD_ARRIVALS_H_
#define ATTND_CLIENT_ATTNLOAD_ARRIVALS_H_

// When an open loop sends, and what a mix sends next. Both follow from a seed.

#include <cstdint>
#include <random>
#include <vector>

#include "absl/time/time.h"
#include "client/attnload/shape.h"

namespace attnd::attnload {

// Independent arrivals at a mean rate, whatever the server does: what many
// users who know nothing of one another look like.
class PoissonArrivals {
 public:
  PoissonArrivals(double per_second, uint64_t seed)
      : random_(seed), gap_seconds_(per_second) {}

  // When the next request is due, from the start.
  absl::Duration Next() {
    due_ += absl::Seconds(gap_seconds_(random_));
    return due_;
  }

 private:
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_seconds_;
  absl::Duration due_;
};

// Indices of shapes, by weight.
class MixPicker {
 public:
  MixPicker(const std::vector<Shape>& shapes, uint64_t seed) : random_(seed) {
    std::vector<double> weights;
    weights.reserve(shapes.size());
    for (const Shape& shape : shapes) weights.push_back(shape.weight);
    pick_ = std::discrete_distribution<size_t>(weights.begin(), weights.end());
  }

  size_t Next() { return pick_(random_); }

 private:
  std::mt19937_64 random_;
  std::discrete_distribution<size_t> pick_;
};

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_ARRIVALS_H_
