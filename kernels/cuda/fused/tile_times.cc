#include "kernels/cuda/fused/tile_times.h"

#include <algorithm>

#include "kernels/cuda/tile/column_order.h"
#include "kernels/cuda/tile/visits.h"

namespace attnd::cuda {
namespace {

// FLOPs that a multiprocessor does in a microsecond, masked pairs of visited
// tiles included. Hopper's kernels have 520 to 720 TFLOP/s forward and 460 to
// 555 backward on 132 multiprocessors (tests/bench/RESULTS.md). Those for any
// GPU have 300 to 350 forward there, 2.5 million, and on an A100 less. F32 runs
// on the FMA units, of which an A100 has a peak of 0.18 million and an H100 of
// 0.5; its kernels are said to reach about half of the larger one.
struct Rates {
  double forward, backward;
};
constexpr Rates kHopperRates = {4.4e6, 3.8e6};
constexpr Rates k16BitRates = {2.0e6, 1.5e6};
constexpr Rates kF32Rates = {0.2e6, 0.12e6};
// Bytes that it reads or writes in a microsecond: 14 KB on an A100, 25 on an
// H100.
constexpr double kBytesPerMicro = 2e4;
// What a tile takes whatever it has to do.
constexpr double kTileMicros = 1;

// Products of matrices with a row or column each, and their FLOPs per dim.
constexpr double kForwardFlops = 4;
constexpr double kBackwardFlops = 10;

const Rates& RatesOf(const Kernel& kernel, const Problem& p) {
  if (p.dtype() == DType::kF32) return kF32Rates;
  return kernel.persistent ? kHopperRates : k16BitRates;
}

// Kernels that score nothing copy rows, or write a little down.
double CopyMicros(const Kernel& kernel, const Problem& p) {
  const int64_t row_bytes =
      2 * p.value_dim * SizeOf(p.dtype()) + p.head_dim * sizeof(float);
  return kTileMicros +
         static_cast<double>(kernel.rows * row_bytes) / kBytesPerMicro;
}

// Decoding reads K and V.
double DecodeMicros(const Tiles& tiles, const Problem& p) {
  const double bytes = static_cast<double>(tiles.columns) *
                       static_cast<double>(p.head_dim + p.value_dim) *
                       static_cast<double>(SizeOf(p.dtype()));
  return kTileMicros + bytes / kBytesPerMicro;
}

}  // namespace

TileTimes::TileTimes(const Kernel& kernel, const Tiles& tiles)
    : kernel_(kernel), tiles_(tiles), p_(*tiles.problem) {
  if (kernel.cols == 0) {
    most_ = CopyMicros(kernel, p_);
  } else if (IsDecode(kernel.rows)) {
    most_ = DecodeMicros(tiles, p_);
  } else {
    const Rates& rates = RatesOf(kernel, p_);
    pair_micros_ =
        kernel.dim * (tiles.are_columns ? kBackwardFlops / rates.backward
                                        : kForwardFlops / rates.forward);
    // Rows are visited in whole blocks.
    const int64_t blocks = (p_.q_len + kernel.rows - 1) / kernel.rows;
    const double columns =
        static_cast<double>(tiles.are_columns ? kernel.cols : tiles.columns);
    const double rows = static_cast<double>(kernel.rows) *
                        (tiles.are_columns ? static_cast<double>(p_.group()) *
                                                 static_cast<double>(blocks)
                                           : 1.0);
    most_ = kTileMicros + pair_micros_ * rows * columns;
  }
}

TileTimes::Alike TileTimes::From(int64_t index) {
  if (pair_micros_ == 0) return {tiles_.count() - index, most_};
  const Place place = PlaceOf(index);
  const int64_t heads = tiles_.heads / p_.batch;  // of a sequence
  const int64_t b = place.head / heads;
  return {std::min(place.count, (b + 1) * heads - place.head),
          kTileMicros + pair_micros_ * Pairs(b, place.block)};
}

TileTimes::Place TileTimes::PlaceOf(int64_t index) const {
  return tiles_.are_columns ? ColumnPlaceOf(index) : RowPlaceOf(index);
}

// As sm90/scheduler.cuh has it; in sm80's heads follow one another. The last
// rows come first.
TileTimes::Place TileTimes::RowPlaceOf(int64_t index) const {
  const int64_t together = kernel_.persistent ? tiles_.heads_together : 1;
  const int64_t blocks = tiles_.row_blocks;
  const int64_t rest = tiles_.heads % together;
  int64_t first_head = 0, width = std::max<int64_t>(rest, 1);
  if (index >= rest * blocks) {
    index -= rest * blocks;
    const int64_t section = index / (together * blocks);
    index -= section * together * blocks;
    first_head = rest + section * together;
    width = together;
  }
  const bool by_head =
      tiles_.heads_follow && first_head + width != tiles_.heads;
  const int64_t block = by_head ? index % blocks : index / width;
  const int64_t head = by_head ? index / blocks : index % width;
  return {first_head + head, blocks - 1 - block, by_head ? 1 : width - head};
}

// As sm90/backward/plan_columns.cu has it; in sm80's heads follow one another.
TileTimes::Place TileTimes::ColumnPlaceOf(int64_t index) const {
  const auto [head, block] =
      cuda::PlaceOf({static_cast<uint32_t>(tiles_.heads),
                     static_cast<uint32_t>(tiles_.row_blocks),
                     static_cast<uint32_t>(tiles_.heads_together),
                     static_cast<uint32_t>(tiles_.chunk_blocks)},
                    static_cast<uint32_t>(index));
  const bool goes_up =
      !tiles_.last_first || (tiles_.alternates && ColumnsOfHeadGoUp(head));
  return {head, goes_up ? block : tiles_.row_blocks - 1 - block, 1};
}

bool TileTimes::ColumnsOfHeadGoUp(int64_t head) const {
  const int64_t heads = tiles_.heads / p_.batch;
  int64_t blocks = 0;
  for (const KvSegment& s : p_.kv) {
    blocks += (KvLen(s, head / heads) + kernel_.cols - 1) / kernel_.cols;
  }
  return ColumnsGoUp(tiles_.first_kv_head + head % heads, tiles_.whole_kv_heads,
                     blocks, kernel_.cluster);
}

double TileTimes::Pairs(int64_t b, int64_t block) {
  if (b != sequence_) {
    sequence_ = b;
    intervals_.clear();
    for (const KvSegment& s : p_.kv) {
      intervals_.push_back(MakeRowIntervals(p_, b, s));
    }
  }
  return tiles_.are_columns ? ColumnPairs(block) : RowPairs(block);
}

double TileTimes::RowPairs(int64_t block) const {
  const int64_t first = block * kernel_.rows, rows = QLen(p_, sequence_);
  if (first >= rows) return 0;
  const int64_t last = std::min(first + kernel_.rows, rows) - 1;
  int64_t columns = 0;
  for (const RowIntervals& segment : intervals_) {
    columns += segment.Rows(first, last).size();
  }
  return static_cast<double>(kernel_.rows) * static_cast<double>(columns);
}

double TileTimes::ColumnPairs(int64_t block) const {
  for (size_t n = 0; n < intervals_.size(); ++n) {
    const int64_t cols = kernel_.cols;
    const int64_t blocks = (p_.kv[n].len + cols - 1) / cols;
    if (block < blocks) {
      const int64_t rows =
          kernel_.rows *
          RowBlocksOf(intervals_[n], block * cols, kernel_.cols, kernel_.rows)
              .size();
      return static_cast<double>(cols) * static_cast<double>(p_.group()) *
             static_cast<double>(rows);
    }
    block -= blocks;
  }
  return 0;
}

}  // namespace attnd::cuda
