#include "tests/kernels/chained_backward.h"

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/problem_part.h"
#include "tests/kernels/q_starts.h"

namespace attnd::testing {
namespace {

ConstTensorView Const(const TensorView& view) {
  return {view.data, view.dtype, view.batch_stride, view.token_stride,
          view.head_stride};
}

// A gradient that is passed on from link to link, the last of which writes it
// where it is wanted.
class Chain {
 public:
  Chain(const TensorView& wanted, size_t links, bool in_place, int64_t batch,
        int64_t tokens, int64_t heads, int64_t dim)
      : wanted_(wanted), links_(links), in_place_(in_place) {
    constexpr int64_t kGap = 4;  // elements, so that rows stay aligned
    if (!wanted) return;
    for (size_t i = 0; i + 1 < links && !(in_place && i > 0); ++i) {
      passed_.emplace_back(DType::kF32, batch, tokens, heads, dim, false, kGap);
    }
  }

  TensorView To(size_t link) {
    if (!wanted_ || link + 1 == links_) return wanted_;
    if (!in_place_) return passed_[link].view();
    return wanted_.dtype == DType::kF32 ? wanted_ : passed_[0].view();
  }
  ConstTensorView Before(size_t link) {
    return link == 0 ? ConstTensorView() : Const(To(link - 1));
  }
  bool GapsIntact() const {
    for (const OwnedTensor& t : passed_) {
      if (!t.GapsIntact()) return false;
    }
    return true;
  }

 private:
  const TensorView wanted_;
  const size_t links_;
  const bool in_place_;
  std::vector<OwnedTensor> passed_;
};

ConstRowView FromRow(ConstRowView rows, int64_t first) {
  if (rows) rows.data += first;
  return rows;
}

// Backward of some rows, but for the problem and dq's place.
BackwardArgs RowsFrom(const BackwardArgs& args, int64_t first) {
  BackwardArgs part = args;
  part.d_o = FromToken(args.d_o, first);
  part.o = FromToken(args.o, first);
  part.lse = FromRow(args.lse, first);
  part.delta = FromRow(args.delta, first);
  part.d_lse = FromRow(args.d_lse, first);
  return part;
}

}  // namespace

absl::Status BackwardInLinks(const BackwardArgs& args, int most_links,
                             uint32_t seed, bool in_place,
                             const BackwardFn& run) {
  Problem p = args.problem;
  const std::vector<int64_t> q_starts = QStarts(p);
  std::mt19937 random(seed);
  const auto rows = CutAnywhere(p.q_len, most_links, random);
  const auto columns = CutAnywhere(PaddedKvLen(p), most_links, random);
  Chain dq(args.dq, columns.size(), in_place, p.batch, p.q_len, p.q_heads,
           p.head_dim);
  std::vector<Chain> dk, dv;
  for (const KvSegment& s : p.kv) {
    const auto chain = [&](const TensorView& wanted, int64_t dim) {
      return Chain(wanted, rows.size(), in_place, p.batch, s.len, p.kv_heads,
                   dim);
    };
    dk.push_back(chain(s.dk, p.head_dim));
    dv.push_back(chain(s.dv, p.value_dim));
  }
  std::vector<KvSegment> segments(p.kv.begin(), p.kv.end());
  p.kv = segments;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t n = 0; n < segments.size(); ++n) {
      segments[n].dk = dk[n].To(r);
      segments[n].dv = dv[n].To(r);
      segments[n].dk_before = dk[n].Before(r);
      segments[n].dv_before = dv[n].Before(r);
    }
    for (size_t c = 0; c < columns.size(); ++c) {
      const ProblemPart link(p, rows[r], columns[c], q_starts);
      BackwardArgs part = RowsFrom(args, rows[r].lo);
      part.problem = link.problem();
      part.dq = FromToken(dq.To(c), rows[r].lo);
      part.dq_before = FromToken(dq.Before(c), rows[r].lo);
      if (absl::Status status = run(part); !status.ok()) return status;
    }
  }
  bool intact = dq.GapsIntact();
  for (const Chain& chain : dk) intact = intact && chain.GapsIntact();
  for (const Chain& chain : dv) intact = intact && chain.GapsIntact();
  if (intact) return absl::OkStatus();
  return absl::InternalError("something between a gradient's rows is written");
}

}  // namespace attnd::testing
