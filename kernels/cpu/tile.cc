#include "kernels/cpu/tile.h"

#include <cassert>

#include "kernels/cpu/aligned_memory.h"

namespace attnd::cpu {

void Sequence::Reset(const Problem& problem, int64_t b) {
  problem_ = problem;
  b_ = b;
  q_len_ = QLen(problem, b);
  if (problem.q_starts.empty() && !problem.q_start.has_value()) {
    problem_.q_start = KvLen(problem, b) - q_len_;
  }
  rows_.clear();
  bias_columns_.clear();
  own_columns_.clear();
  int64_t column = 0, own = 0;
  for (const KvSegment& segment : problem.kv) {
    rows_.push_back(MakeRowIntervals(problem_, b, segment));
    bias_columns_.push_back(column);
    own_columns_.push_back(own);
    column += segment.len;
    own += rows_.back().columns;
  }
}

int64_t Sequence::Columns(int64_t first, int64_t last) const {
  int64_t columns = 0;
  for (const RowIntervals& rows : rows_) {
    columns += rows.Rows(first, last).size();
  }
  return columns;
}

Interval Sequence::RowsThatSee(const std::vector<Piece>& pieces) const {
  Interval rows{q_len_, 0};
  for (const Piece& piece : pieces) {
    const Interval seen = rows_[piece.segment].RowsThatSee(
        piece.first, piece.first + piece.count - 1);
    if (seen.empty()) continue;
    rows.lo = std::min(rows.lo, seen.lo);
    rows.hi = std::max(rows.hi, seen.hi);
  }
  return rows;
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
  while (tokens < kTileTokens && wanted_ > 0) {
    while (left_.empty()) {
      if (++segment_ >= sequence_.segments()) return tokens;
      left_ = sequence_.rows(segment_).Rows(first_, last_);
    }
    const int64_t skipped = std::min(left_.size(), skip_);
    left_.lo += skipped;
    skip_ -= skipped;
    const int64_t n = std::min({left_.size(), kTileTokens - tokens, wanted_});
    if (n == 0) continue;
    pieces->push_back({segment_, left_.lo, tokens, n});
    tokens += n;
    wanted_ -= n;
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

}  // namespace attnd::cpu
