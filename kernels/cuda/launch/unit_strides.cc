#include "kernels/cuda/launch/unit_strides.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "kernels/mask.h"

namespace attnd::cuda {

UnitStrides::UnitStrides(const Problem& problem) : problem_(&problem) {
  if (!IsStriped(problem) || !FindWindow(problem)) return;
  segments_.assign(problem.kv.begin(), problem.kv.end());
  for (size_t n = 0; n < segments_.size(); ++n) {
    segments_[n].positions = {.starts = starts_[n]};
  }
  const Mask window = unit_.mask;
  unit_ = problem;
  unit_.mask = window;
  unit_.q_start = 0;
  unit_.q_starts = {};
  unit_.q_stride = 1;
  unit_.kv = segments_;
  problem_ = &unit_;
}

bool UnitStrides::IsStriped(const Problem& p) {
  return p.q_stride > 1 && !p.kv.empty() &&
         std::all_of(p.kv.begin(), p.kv.end(), [&](const KvSegment& s) {
           return s.positions.stride == p.q_stride;
         });
}

// Row i sees columns [i + first, i + last], where neither depends on i. So with
// row 0 at 0 and a limit on the right of 0, column 0 stands at -last, and the
// limit on the left is last - first.
bool UnitStrides::FindWindow(const Problem& p) {
  std::optional<int64_t> left;
  for (const KvSegment& s : p.kv) {
    auto& starts = starts_.emplace_back();
    for (int64_t b = 0; b < p.batch; ++b) {
      const RowIntervals rows = MakeRowIntervals(p, b, s);
      const int64_t offset = rows.q_start - rows.kv_start;
      const int64_t last =
          RowIntervals::FloorDiv(offset + rows.right, p.q_stride);
      const int64_t first =
          RowIntervals::CeilDiv(offset - rows.left, p.q_stride);
      starts.push_back(rows.right >= 0 ? -last : rows.left >= 0 ? -first : 0);
      if (rows.right < 0 || rows.left < 0) continue;
      if (last < first || left.value_or(last - first) != last - first) {
        return false;
      }
      left = last - first;
    }
  }
  const Mask mask = Resolve(p.mask);
  unit_.mask.right = mask.right < 0 ? -1 : 0;
  unit_.mask.left = mask.left < 0 ? -1 : mask.right < 0 ? 0 : left.value_or(0);
  return true;
}

}  // namespace attnd::cuda
