#include "tests/kernels/chained_forward.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/q_starts.h"

namespace attnd::testing {
namespace {

// Columns [first, end) of a problem's padded ones, as a problem.
class Link {
 public:
  Link(const Problem& whole, int64_t first, int64_t end,
       absl::Span<const int64_t> q_starts)
      : problem_(whole) {
    problem_.q_starts = q_starts;
    int64_t column = 0;
    for (const KvSegment& s : whole.kv) {
      const int64_t begin = std::clamp<int64_t>(first - column, 0, s.len);
      AddPiece(s, begin, std::clamp<int64_t>(end - column, begin, s.len));
      column += s.len;
    }
    for (size_t n = 0; n < segments_.size(); ++n) {
      segments_[n].lens = lens_[n];
      segments_[n].positions.starts = starts_[n];
    }
    problem_.kv = segments_;
    if (whole.bias) {
      problem_.bias.data = static_cast<const std::byte*>(whole.bias.data) +
                           first * SizeOf(whole.bias.dtype);
    }
  }

  const Problem& problem() const { return problem_; }

 private:
  void AddPiece(const KvSegment& s, int64_t begin, int64_t end) {
    KvSegment piece = s;
    piece.len = end - begin;
    for (ConstTensorView* view : {&piece.k, &piece.v}) {
      view->data = static_cast<const std::byte*>(view->data) +
                   begin * view->token_stride * SizeOf(view->dtype);
    }
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

  Problem problem_;
  std::vector<KvSegment> segments_;
  std::vector<std::vector<int64_t>> lens_, starts_;  // by segment
};

}  // namespace

absl::Status ForwardInLinks(const ForwardArgs& args, int most_links,
                            uint32_t seed, const ForwardFn& run) {
  constexpr int64_t kGap = 4;  // elements, so that rows stay aligned
  const Problem& p = args.problem;
  const std::vector<int64_t> q_starts = QStarts(p);
  std::mt19937 random(seed);
  const int links = std::uniform_int_distribution<>(2, most_links)(random);
  std::uniform_int_distribution<int64_t> column(0, PaddedKvLen(p));
  std::vector<int64_t> ends = {PaddedKvLen(p)};
  for (int i = 1; i < links; ++i) ends.push_back(column(random));
  std::sort(ends.begin(), ends.end());
  OwnedTensor o;
  OwnedRows lse;
  int64_t first = 0;
  for (int i = 0; i < links; ++i) {
    const Link link(p, first, ends[i], q_starts);
    first = ends[i];
    ForwardArgs part = args;
    part.problem = link.problem();
    if (i > 0) part.before.lse = std::as_const(lse).view();
    if (i > 0 && args.o) part.before.o = std::as_const(o).view();
    OwnedTensor next_o(DType::kF32, p.batch, p.q_len, p.q_heads, p.value_dim,
                       false, kGap);
    OwnedRows next_lse(p.batch, p.q_heads, p.q_len, kGap);
    if (i + 1 < links) {
      if (args.o) part.o = next_o.view();
      part.lse = next_lse.view();
    }
    absl::Status status = run(part);
    if (!status.ok()) return status;
    if (!next_o.GapsIntact() || !next_lse.GapsIntact()) {
      return absl::InternalError("something between a state's rows is written");
    }
    o = std::move(next_o);
    lse = std::move(next_lse);
  }
  return absl::OkStatus();
}

}  // namespace attnd::testing
