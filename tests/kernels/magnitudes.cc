#include "tests/kernels/magnitudes.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/drive.h"

namespace attnd::testing {
namespace {

using reference::Head;

double AbsDot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t d = 0; d < n; ++d) sum += std::abs(a[d] * b[d]);
  return sum;
}

// Scores of row i, and how a relative error of them grows: 1 + the largest
// |scale| sum |q k| + |score|, since P = exp(score - ...).
double Row(const Head<double>& head, double scale, int64_t i,
           std::vector<double>& s) {
  s.resize(head.columns());
  head.Scores(i, 0, head.columns(), s.data());
  double growth = 1;
  for (int64_t j = 0; j < head.columns(); ++j) {
    if (!std::isfinite(s[j])) continue;
    const double dot = AbsDot(head.q()[i], head.k()[j], head.q().cols());
    growth = std::max(growth, 1 + std::abs(scale) * dot + std::abs(s[j]));
  }
  return growth;
}

}  // namespace

reference::ExactForward ForwardMagnitudes(const Problem& p) {
  const reference::ExactForward exact = reference::OracleForward(p);
  reference::ExactForward out{std::vector<double>(exact.o.size(), 0.0),
                              std::vector<double>(exact.lse.size(), 0.0)};
  std::vector<double> s;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const Head<double> head(p, b, h);
      for (int64_t i = 0; i < head.rows(); ++i) {
        const int64_t row = (b * p.q_heads + h) * p.q_len + i;
        if (std::isinf(exact.lse[row])) continue;
        const double growth = Row(head, p.scale, i, s);
        double* o = &out.o[((b * p.q_len + i) * p.q_heads + h) * p.value_dim];
        for (int64_t j = 0; j < head.columns(); ++j)
          for (int64_t d = 0; d < p.value_dim; ++d)
            o[d] += growth * std::exp(s[j] - exact.lse[row]) *
                    std::abs(head.v()[j][d]);
        out.lse[row] = growth + std::abs(exact.lse[row]);
      }
    }
  }
  return out;
}

reference::ExactBackward BackwardMagnitudes(const BackwardArgs& args) {
  const Problem& p = args.problem;
  reference::ExactBackward out;
  out.dq.assign(p.batch * p.q_len * p.q_heads * p.head_dim, 0.0);
  for (const KvSegment& segment : p.kv) {
    out.dk.emplace_back(p.batch * segment.len * p.kv_heads * p.head_dim, 0.0);
    out.dv.emplace_back(p.batch * segment.len * p.kv_heads * p.value_dim, 0.0);
  }
  std::vector<double> s;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const Head<double> head(p, b, h);
      const auto in = reference::ReadUpstream<double>(args, b, h);
      for (int64_t i = 0; i < head.rows(); ++i) {
        if (std::isinf(in.lse[i])) continue;
        const double growth = Row(head, p.scale, i, s) + std::abs(in.lse[i]);
        double delta = std::abs(in.delta[i]);
        if (args.o)  // its sum may have cancelled: |O| is at most the largest
                     // |V|
          for (int64_t j = 0; j < head.columns(); ++j)
            if (std::isfinite(s[j]))
              delta =
                  std::max(delta, AbsDot(in.d_o[i], head.v()[j], p.value_dim));
        int64_t j = 0;
        for (size_t n = 0; n < p.kv.size(); ++n) {
          for (int64_t t = 0; t < KvLen(p.kv[n], b); ++t, ++j) {
            const double weight = growth * std::exp(s[j] - in.lse[i]);
            const double dp = AbsDot(in.d_o[i], head.v()[j], p.value_dim);
            const double dx = weight * (dp + delta) * std::abs(p.scale);
            const int64_t kv_row =
                (b * p.kv[n].len + t) * p.kv_heads + h / p.group();
            const int64_t q_row = (b * p.q_len + i) * p.q_heads + h;
            for (int64_t d = 0; d < p.value_dim; ++d)
              out.dv[n][kv_row * p.value_dim + d] +=
                  weight * std::abs(in.d_o[i][d]);
            for (int64_t d = 0; d < p.head_dim; ++d) {
              out.dk[n][kv_row * p.head_dim + d] +=
                  dx * std::abs(head.q()[i][d]);
              out.dq[q_row * p.head_dim + d] += dx * std::abs(head.k()[j][d]);
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace attnd::testing
