#include "tests/bench/gpu/plan/host_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

// What one thread does at a time; values do not depend on how many there are.
constexpr int64_t kPiece = int64_t{1} << 15;

int64_t Pieces(int64_t count) { return (count + kPiece - 1) / kPiece; }

// Calls work(piece, begin, end) for all pieces of [0, count), on all cores.
void ForPieces(int64_t count,
               absl::FunctionRef<void(int64_t, int64_t, int64_t)> work) {
  const int64_t pieces = Pieces(count);
  const int64_t threads = std::clamp<int64_t>(
      static_cast<int64_t>(std::thread::hardware_concurrency()), 1,
      std::max<int64_t>(pieces, 1));
  const auto run = [&](int64_t thread) {
    for (int64_t piece = thread; piece < pieces; piece += threads) {
      work(piece, piece * kPiece, std::min((piece + 1) * kPiece, count));
    }
  };
  std::vector<std::thread> others;
  for (int64_t thread = 1; thread < threads; ++thread) {
    others.emplace_back(run, thread);
  }
  run(0);
  for (std::thread& other : others) other.join();
}

double Total(const std::vector<double>& parts) {
  double total = 0;
  for (double part : parts) total += part;
  return total;
}

// Steele et al., "Fast splittable pseudorandom number generators": SplitMix64.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Sums of four uniform values, of mean 0 and variance 1.
void FillRandomly(std::byte* memory, int64_t elements, uint64_t seed) {
  auto* const to = reinterpret_cast<uint16_t*>(memory);
  constexpr float kMean = 2 * 65535.0f;
  const float scale = std::sqrt(3.0f) / 65536.0f;
  ForPieces(elements, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t x = Mix(seed << 40 ^ static_cast<uint64_t>(i));
      const uint32_t sum = static_cast<uint32_t>(
          (x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
      to[i] = FloatToBF16((static_cast<float>(sum) - kMean) * scale);
    }
  });
}

double Squares(const uint16_t* a, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += BF16ToFloat(a[i]) * BF16ToFloat(a[i]);
  }
  return sum;
}

double SquaresOfDifference(const uint16_t* a, const uint16_t* b,
                           int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float d = BF16ToFloat(a[i]) - BF16ToFloat(b[i]);
    sum += d * d;
  }
  return sum;
}

}  // namespace

HostTensors::HostTensors(std::shared_ptr<HostMemory> memory,
                         const TensorSizes& sizes)
    : memory_(std::move(memory)) {
  uint64_t seed = 1;
  const auto fill = [&](std::byte*& input, int64_t elements) {
    input = Allocate(2 * elements);
    FillRandomly(input, elements, seed++);
  };
  fill(q_, sizes.q);
  fill(k_, sizes.kv);
  fill(v_, sizes.kv);
  fill(d_o_, sizes.d_q);
  reference_ = AllocateOutputs(sizes);
  got_ = AllocateOutputs(sizes);
}

HostTensors::~HostTensors() {
  for (const Block& block : blocks_) memory_->Free(block.memory, block.bytes);
}

std::byte* HostTensors::Allocate(int64_t bytes) {
  bytes = std::max<int64_t>(bytes, 1);  // or there would be no address
  std::byte* const memory = memory_->Allocate(bytes);
  if (memory == nullptr) {
    Require(absl::ResourceExhaustedError(
        absl::StrCat("no host memory for ", bytes, " bytes")));
  }
  blocks_.push_back({memory, bytes});
  return memory;
}

Outputs HostTensors::AllocateOutputs(const TensorSizes& sizes) {
  Outputs outputs;
  outputs.o = Allocate(2 * sizes.q);
  outputs.dq = Allocate(2 * sizes.d_q);
  outputs.dk = Allocate(2 * sizes.d_kv);
  outputs.dv = Allocate(2 * sizes.d_kv);
  outputs.lse = Allocate(4 * sizes.rows);
  return outputs;
}

void FillWithNan(std::byte* memory, int64_t bytes) {
  ForPieces(bytes, [&](int64_t, int64_t begin, int64_t end) {
    std::memset(memory + begin, 0xff, end - begin);
  });
}

bool AreEqual(const std::byte* a, const std::byte* b, int64_t bytes) {
  std::vector<char> differs(Pieces(bytes));
  ForPieces(bytes, [&](int64_t piece, int64_t begin, int64_t end) {
    differs[piece] = std::memcmp(a + begin, b + begin, end - begin) != 0;
  });
  return std::count(differs.begin(), differs.end(), 1) == 0;
}

uint64_t Fingerprint(const std::byte* memory, int64_t bytes) {
  std::vector<uint64_t> parts(Pieces(bytes));
  ForPieces(bytes, [&](int64_t piece, int64_t begin, int64_t end) {
    uint64_t hash = Mix(static_cast<uint64_t>(piece));
    for (int64_t at = begin; at < end; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, memory + at, std::min<int64_t>(8, end - at));
      hash = (hash ^ word) * 0x9fb21c651e98df25;
      hash ^= hash >> 32;
    }
    parts[piece] = hash;
  });
  uint64_t all = 0;
  for (uint64_t part : parts) all = Mix(all ^ part);
  return all;
}

double LargestDifference(const std::byte* got, const std::byte* reference,
                         int64_t elements, int64_t dim) {
  const auto* const a = reinterpret_cast<const uint16_t*>(got);
  const auto* const b = reinterpret_cast<const uint16_t*>(reference);
  const int64_t vectors = elements / dim;
  std::vector<double> parts(Pieces(vectors));
  ForPieces(vectors, [&](int64_t piece, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      parts[piece] += Squares(b + i * dim, dim);
    }
  });
  const double usual = std::sqrt(
      Total(parts) / static_cast<double>(std::max<int64_t>(vectors, 1)));
  std::fill(parts.begin(), parts.end(), 0.0);
  ForPieces(vectors, [&](int64_t piece, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double difference =
          std::sqrt(SquaresOfDifference(a + i * dim, b + i * dim, dim));
      const double part =
          difference == 0
              ? 0
              : difference / (std::sqrt(Squares(b + i * dim, dim)) + usual);
      // NaN is not below anything.
      if (!(part <= parts[piece])) {
        parts[piece] =
            std::isnan(part) ? std::numeric_limits<double>::infinity() : part;
      }
    }
  });
  return parts.empty() ? 0 : *std::max_element(parts.begin(), parts.end());
}

double LargestFloatDifference(const std::byte* got, const std::byte* reference,
                              int64_t elements) {
  const auto* const a = reinterpret_cast<const float*>(got);
  const auto* const b = reinterpret_cast<const float*>(reference);
  double largest = 0;
  for (int64_t i = 0; i < elements; ++i) {
    if (a[i] == b[i]) continue;  // -inf, too
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                     : std::max(largest, difference);
  }
  return largest;
}

}  // namespace attnd::bench
