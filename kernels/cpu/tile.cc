#include "kernels/cpu/tile.h"

#include <cassert>

#include "kernels/cpu/aligned_memory.h"

namespace attnd {

void Sequence::Reset(const Problem& problem, int64_t b) {
  problem_ = problem;
  b_ = b;
  q_len_ = QLen(problem, b);
  if (problem.q_starts.empty() && !problem.q_start.has_value()) {
    problem_.q_start = KvLen(problem, b) - q_len_;
  }
  rows_.clear();
  bias_columns_.clear();
  int64_t column = 0;
  for (const KvSegment& segment : problem.kv) {
    rows_.push_back(MakeRowIntervals(problem_, b, segment));
    bias_columns_.push_back(column);
    column += segment.len;
  }
}

int64_t Sequence::Columns(int64_t first, int64_t last) const {
  int64_t columns = 0;
  for (const RowIntervals& rows : rows_) {
    columns += rows.Rows(first, last).size();
  }
  return columns;
}

Interval Sequence::RowsThatSee(const Piece& piece) const {
  const RowIntervals& rows = rows_[piece.segment];
  // The first row in [0, q_len_] for which `passed` holds; it stays true.
  const auto first_row = [&](auto passed) {
    int64_t lo = 0, hi = q_len_;
    while (lo < hi) {
      const int64_t mid = lo + (hi - lo) / 2;
      if (passed(rows.Row(mid))) {
        hi = mid;
      } else {
        lo = mid + 1;
      }
    }
    return lo;
  };
  return {
      first_row([&](Interval r) { return r.hi > piece.first; }),
      first_row([&](Interval r) { return r.lo >= piece.first + piece.count; })};
}

void Sequence::Pieces(int64_t first, int64_t count,
                      std::vector<Piece>* pieces) const {
  pieces->clear();
  int64_t offset = 0;
  for (int64_t s = 0; s < segments() && offset < count; ++s) {
    const int64_t columns = rows_[s].columns;
    if (first < columns) {
      const int64_t n = std::min(columns - first, count - offset);
      pieces->push_back({s, first, offset, n});
      offset += n;
      first = 0;
    } else {
      first -= columns;
    }
  }
}

int64_t TileWalk::Next(std::vector<Piece>* pieces) {
  pieces->clear();
  int64_t tokens = 0;
  while (tokens < kTileTokens) {
    while (left_.empty()) {
      if (++segment_ >= sequence_.segments()) return tokens;
      left_ = sequence_.rows(segment_).Rows(first_, last_);
    }
    const int64_t n = std::min(left_.size(), kTileTokens - tokens);
    pieces->push_back({segment_, left_.lo, tokens, n});
    tokens += n;
    left_.lo += n;
  }
  return tokens;
}

Scratch::Scratch()
    : memory_(reinterpret_cast<float*>(
          AllocateAligned(kCapacity * sizeof(float)))) {}

Scratch::~Scratch() {
  FreeAligned(reinterpret_cast<std::byte*>(memory_), kCapacity * sizeof(float));
}

float* Scratch::Take(int64_t floats) {
  float* memory = memory_ + used_;
  used_ += (floats + 15) / 16 * 16;
  assert(used_ <= kCapacity);
  return memory;
}

}  // namespace attnd
