#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/flash.h"
#include "kernels/dtype.h"

namespace attnd::cpu {
namespace {

// Tokens [first, last) of all heads. No type's zero has a bit set.
void ClearTokens(const TensorView& view, int64_t b, int64_t first, int64_t last,
                 int64_t heads, int64_t dim) {
  if (!view) return;
  for (int64_t t = first; t < last; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      std::memset(RowAt(view, b, t, h), 0, dim * SizeOf(view.dtype));
    }
  }
}

// The same of a gradient, which is then what was there before, if anything was.
void ClearGradient(const ConstTensorView& before, const TensorView& view,
                   int64_t b, int64_t first, int64_t last, int64_t heads,
                   int64_t dim) {
  if (!view || !before) return ClearTokens(view, b, first, last, heads, dim);
  for (int64_t t = first; t < last; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const void* from = RowAt(before, b, t, h);
      void* to = RowAt(view, b, t, h);
      for (int64_t d = 0; d < dim; ++d) {
        StoreElement(to, view.dtype, d, LoadElement(from, before.dtype, d));
      }
    }
  }
}

}  // namespace

void ClearForward(const ForwardArgs& args, const FlashTask& task) {
  const Problem& p = args.problem;
  const int64_t q_len = QLen(p, task.b);
  ClearTokens(args.o, task.b, q_len, p.q_len, p.q_heads, p.value_dim);
  if (!args.lse) return;
  for (int64_t h = 0; h < p.q_heads; ++h) {
    float* row = RowAt(args.lse, task.b, h);
    std::fill(row + q_len, row + p.q_len,
              -std::numeric_limits<float>::infinity());
  }
}

void ClearBackward(const BackwardArgs& args, const FlashTask& task) {
  const Problem& p = args.problem;
  ClearGradient(args.dq_before, args.dq, task.b, QLen(p, task.b), p.q_len,
                p.q_heads, p.head_dim);
  for (const KvSegment& s : p.kv) {
    const int64_t len = KvLen(s, task.b);
    ClearGradient(s.dk_before, s.dk, task.b, len, s.len, p.kv_heads,
                  p.head_dim);
    ClearGradient(s.dv_before, s.dv, task.b, len, s.len, p.kv_heads,
                  p.value_dim);
  }
}

}  // namespace attnd::cpu
