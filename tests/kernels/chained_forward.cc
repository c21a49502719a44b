#include "tests/kernels/chained_forward.h"

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/owned_tensor.h"
#include "tests/kernels/problem_part.h"
#include "tests/kernels/q_starts.h"

namespace attnd::testing {

absl::Status ForwardInLinks(const ForwardArgs& args, int most_links,
                            uint32_t seed, const ForwardFn& run) {
  constexpr int64_t kGap = 4;  // elements, so that rows stay aligned
  const Problem& p = args.problem;
  const std::vector<int64_t> q_starts = QStarts(p);
  std::mt19937 random(seed);
  const std::vector<Interval> columns =
      CutAnywhere(PaddedKvLen(p), most_links, random);
  OwnedTensor o;
  OwnedRows lse;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ProblemPart link(p, {0, p.q_len}, columns[i], q_starts);
    ForwardArgs part = args;
    part.problem = link.problem();
    if (i > 0) part.before.lse = std::as_const(lse).view();
    if (i > 0 && args.o) part.before.o = std::as_const(o).view();
    OwnedTensor next_o(DType::kF32, p.batch, p.q_len, p.q_heads, p.value_dim,
                       false, kGap);
    OwnedRows next_lse(p.batch, p.q_heads, p.q_len, kGap);
    if (i + 1 < columns.size()) {
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
