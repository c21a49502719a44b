#include "kernels/reference/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/reference/head.h"

namespace attnd::reference {
namespace {

// Where a row's first element is.
template <typename View>
int64_t Offset(const View& view, int64_t b, int64_t i, int64_t h) {
  return b * view.batch_stride + i * view.token_stride + h * view.head_stride;
}

// (E19), written around the largest so that nothing overflows.
double MergeLse(absl::Span<const Partial> partials, int64_t b, int64_t i,
                int64_t h) {
  double m = kMinusInf<double>, sum = 0;
  const auto lse = [&](const Partial& p) -> double {
    return p.lse.data[b * p.lse.batch_stride + h * p.lse.head_stride + i];
  };
  for (const Partial& p : partials) m = MaxOrNan(m, lse(p));
  if (std::isinf(m)) return m;  // empty, or beyond f32
  for (const Partial& p : partials) sum += std::exp(lse(p) - m);
  return m + std::log(sum);
}

}  // namespace

void Merge(const MergeShape& shape, absl::Span<const Partial> partials,
           const TensorView& o, const RowView& lse) {
  std::vector<double> sum(shape.value_dim);
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      for (int64_t i = 0; i < shape.q_len; ++i) {
        const double merged = MergeLse(partials, b, i, h);
        std::fill(sum.begin(), sum.end(), 0.0);
        for (const Partial& p : partials) {
          const double part =
              p.lse.data[b * p.lse.batch_stride + h * p.lse.head_stride + i];
          if (part == kMinusInf<double>) continue;
          const double weight = std::exp(part - merged);
          for (int64_t d = 0; d < shape.value_dim; ++d)  // (E20)
            sum[d] += weight * LoadElement(p.o.data, p.o.dtype,
                                           Offset(p.o, b, i, h) + d);
        }
        if (o)
          for (int64_t d = 0; d < shape.value_dim; ++d)
            StoreElement(o.data, o.dtype, Offset(o, b, i, h) + d, sum[d]);
        if (lse)
          lse.data[b * lse.batch_stride + h * lse.head_stride + i] = merged;
      }
    }
  }
}

}  // namespace attnd::reference
