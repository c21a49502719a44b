#include "tests/kernels/problem_part.h"

#include <algorithm>

namespace attnd::testing {

std::vector<Interval> CutAnywhere(int64_t tokens, int most,
                                  std::mt19937& random) {
  const int parts = std::uniform_int_distribution<>(2, most)(random);
  std::uniform_int_distribution<int64_t> token(0, tokens);
  std::vector<int64_t> ends = {tokens};
  for (int i = 1; i < parts; ++i) ends.push_back(token(random));
  std::sort(ends.begin(), ends.end());
  std::vector<Interval> intervals;
  int64_t first = 0;
  for (const int64_t end : ends) {
    intervals.push_back({first, end});
    first = end;
  }
  return intervals;
}

ProblemPart::ProblemPart(const Problem& whole, Interval rows, Interval columns,
                         absl::Span<const int64_t> q_starts)
    : problem_(whole) {
  problem_.q = FromToken(whole.q, rows.lo);
  problem_.q_len = rows.size();
  for (int64_t b = 0; b < whole.batch; ++b) {
    q_lens_.push_back(
        std::clamp<int64_t>(QLen(whole, b) - rows.lo, 0, rows.size()));
    q_starts_.push_back(q_starts[b] + rows.lo * whole.q_stride);
  }
  problem_.q_lens = q_lens_;
  problem_.q_starts = q_starts_;
  int64_t column = 0;
  for (const KvSegment& s : whole.kv) {
    const int64_t begin = std::clamp<int64_t>(columns.lo - column, 0, s.len);
    AddPiece(s, begin, std::clamp<int64_t>(columns.hi - column, begin, s.len));
    column += s.len;
  }
  for (size_t n = 0; n < segments_.size(); ++n) {
    segments_[n].lens = lens_[n];
    segments_[n].positions.starts = starts_[n];
  }
  problem_.kv = segments_;
  if (whole.bias) {
    problem_.bias.data = static_cast<const std::byte*>(whole.bias.data) +
                         (rows.lo * whole.bias.row_stride + columns.lo) *
                             SizeOf(whole.bias.dtype);
  }
}

void ProblemPart::AddPiece(const KvSegment& s, int64_t begin, int64_t end) {
  KvSegment piece = s;
  piece.len = end - begin;
  piece.k = FromToken(s.k, begin);
  piece.v = FromToken(s.v, begin);
  piece.dk = FromToken(s.dk, begin);
  piece.dv = FromToken(s.dv, begin);
  piece.dk_before = FromToken(s.dk_before, begin);
  piece.dv_before = FromToken(s.dv_before, begin);
  auto& lens = lens_.emplace_back();
  auto& starts = starts_.emplace_back();
  for (int64_t b = 0; b < problem_.batch; ++b) {
    lens.push_back(std::clamp<int64_t>(KvLen(s, b) - begin, 0, piece.len));
    starts.push_back((s.positions.starts.empty() ? s.positions.start
                                                 : s.positions.starts[b]) +
                     begin * s.positions.stride);
  }
  segments_.push_back(piece);
}

}  // namespace attnd::testing
