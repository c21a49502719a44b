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

double Lse(const Partial& p, int64_t b, int64_t i, int64_t h) {
  return p.lse.data[b * p.lse.batch_stride + h * p.lse.head_stride + i];
}

// One row: fills `o` with the merged O and gives the merged LSE. Weights are
// taken from the largest LSE and divided by their sum, since LSE may be too
// large for the logarithm of that sum to show in it.
double MergeRow(absl::Span<const Partial> partials, int64_t b, int64_t i,
                int64_t h, std::vector<double>& o) {
  std::fill(o.begin(), o.end(), 0.0);
  double m = kMinusInf<double>, weights = 0;
  for (const Partial& p : partials) m = MaxOrNan(m, Lse(p, b, i, h));
  if (m == kMinusInf<double>) return m;  // only empty partials
  for (const Partial& p : partials) {
    if (Lse(p, b, i, h) == kMinusInf<double>) continue;
    const double weight = std::exp(Lse(p, b, i, h) - m);
    weights += weight;
    for (size_t d = 0; d < o.size(); ++d)
      o[d] +=
          weight * LoadElement(p.o.data, p.o.dtype, Offset(p.o, b, i, h) + d);
  }
  for (double& value : o) value /= weights;  // (E20)
  return m + std::log(weights);              // (E19)
}

}  // namespace

void Merge(const MergeShape& shape, absl::Span<const Partial> partials,
           const TensorView& o, const RowView& lse) {
  std::vector<double> row(shape.value_dim);
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      for (int64_t i = 0; i < shape.q_len; ++i) {
        const double merged = MergeRow(partials, b, i, h, row);
        if (lse)
          lse.data[b * lse.batch_stride + h * lse.head_stride + i] = merged;
        if (!o) continue;
        for (int64_t d = 0; d < shape.value_dim; ++d)
          StoreElement(o.data, o.dtype, Offset(o, b, i, h) + d, row[d]);
      }
    }
  }
}

}  // namespace attnd::reference
