#include "tests/service_fuzz/estimate.h"

#include <algorithm>
#include <cmath>

#include "kernels/dtype.h"
#include "kernels/reference/drive.h"

namespace attnd::fuzz {
namespace {

using reference::Head;
using reference::HeadUpstream;

// What rounding P or dS to the inputs' type, for the next product, takes from
// it: relative, and absolute where it is small.
struct Narrowing {
  double relative = 0, absolute = 0, most = 3.4e38;
};
Narrowing NarrowingTo(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {};
    case DType::kF16:
      return {0x1p-11, 0x1p-24, 65000};
    case DType::kBF16:
      return {0x1p-8, 0x1p-133, 3.3e38};
  }
  return {};
}

Estimate Zeros(int64_t size) {
  return {std::vector<double>(size, 0.0), std::vector<double>(size, 0.0)};
}

}  // namespace

ForwardEstimate EstimateForward(const Problem& p,
                                const Arithmetic& arithmetic) {
  const int64_t rows = p.batch * p.q_heads * p.q_len, dim = p.value_dim;
  ForwardEstimate out{Zeros(rows * dim), Zeros(rows)};
  std::fill(out.lse.value.begin(), out.lse.value.end(), -HUGE_VAL);
  const Narrowing narrowing = NarrowingTo(p.dtype());
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      const Head<double> head(p, b, h);
      std::vector<double> magnitude(dim);
      for (int64_t i = 0; i < head.rows(); ++i) {
        const ScoreRow row(p, head, i, arithmetic);
        const int64_t at = (b * p.q_heads + h) * p.q_len + i;
        out.lse.value[at] = row.lse;
        if (row.seen.empty()) continue;
        out.rows += row.seen.size() > 1;
        out.lse.error[at] = row.lse_error;
        double* o = &out.o.value[((b * p.q_len + i) * p.q_heads + h) * dim];
        double* e = &out.o.error[((b * p.q_len + i) * p.q_heads + h) * dim];
        double most = arithmetic.p_of_1 ? 1 : 0;
        for (int64_t j : row.seen) {
          most = std::max(most, row.p[j]);
          for (int64_t d = 0; d < dim; ++d)
            o[d] += row.p[j] * head.v()[j][d];  // (E6)
        }
        const int64_t n = row.seen.size();
        const double sums = arithmetic.Sum(n);
        for (int64_t j : row.seen) {
          // P's sum stays 1 when scores err, not when P is rounded.
          const double shift =
              std::max(row.high[j] - row.p[j], row.p[j] - row.low[j]);
          const double rounding =
              row.high[j] * (narrowing.relative + sums +
                             8 * arithmetic.roundings * kF32Unit) +
              most * (narrowing.absolute + 2 * kF32Normal);
          for (int64_t d = 0; d < dim; ++d) {
            const double v = head.v()[j][d];
            e[d] += shift * std::abs(v - o[d]) + rounding * std::abs(v) +
                    row.high[j] * arithmetic.Unnormalized(v);
          }
        }
        for (int64_t d = 0; d < dim; ++d)
          e[d] += 2 * sums * std::abs(o[d]) + n * arithmetic.least;
      }
    }
  }
  return out;
}

namespace {

// Adds one head's part to the gradients: (E12) to (E18).
class HeadBackward {
 public:
  HeadBackward(const BackwardArgs& args, ConstRowView own_lse,
               const Arithmetic& arithmetic, int64_t b, int64_t h,
               BackwardEstimate& out)
      : args_(args),
        p_(args.problem),
        own_lse_(own_lse),
        arithmetic_(arithmetic),
        b_(b),
        h_(h),
        head_(p_, b, h),
        in_(reference::ReadUpstream<double>(args, b, h)),
        narrowing_(NarrowingTo(p_.dtype())),
        out_(out) {}

  void Run() {
    for (int64_t i = 0; i < head_.rows(); ++i) {
      if (in_.lse[i] == -HUGE_VAL) continue;
      AddRow(i, ScoreRow(p_, head_, i, arithmetic_));
    }
  }

 private:
  // What (E15) subtracts and adds, and how far that may be off.
  double BarError(int64_t i) const {
    double magnitude = std::abs(in_.delta[i]);
    const auto row = [&](const ConstRowView& r) {
      return std::abs(static_cast<double>(
          r.data[b_ * r.batch_stride + h_ * r.head_stride + i]));
    };
    if (args_.d_lse) magnitude += row(args_.d_lse);
    double error = 4 * kF32Unit * magnitude;
    if (args_.delta) return error + 2 * kF32Unit * row(args_.delta);
    double products = 0;
    for (int64_t d = 0; d < p_.value_dim; ++d) {
      const int64_t at = b_ * args_.o.batch_stride + i * args_.o.token_stride +
                         h_ * args_.o.head_stride + d;
      products += std::abs(in_.d_o[i][d] *
                           LoadElement(args_.o.data, args_.o.dtype, at));
    }
    return error + arithmetic_.Sum(p_.value_dim) * products +
           p_.value_dim * arithmetic_.least;
  }

  void AddRow(int64_t i, const ScoreRow& row) {
    if (row.seen.empty()) return;
    out_.rows += row.seen.size() > 1;
    const int64_t kv_head = h_ / p_.group();
    const double scale = p_.scale, unit = kF32Unit;
    const double own =
        own_lse_
            .data[b_ * own_lse_.batch_stride + h_ * own_lse_.head_stride + i];
    const double larger = std::exp(own - in_.lse[i]);
    // What is lost in LSE, and in scores minus LSE.
    const double lost_of_lse =
        arithmetic_.lse * unit *
            (std::max(std::abs(row.lse), std::abs(in_.lse[i])) + 1) +
        arithmetic_.Sum(row.seen.size());
    const double bar_error = BarError(i);
    const double q_sums = arithmetic_.Sum(row.seen.size());
    const double kv_sums = arithmetic_.Sum(p_.q_len * p_.group());
    for (int64_t j : row.seen) {
      const double lost =
          lost_of_lse +
          (arithmetic_.other_sums ? row.error[j] + row.lse_error : 0);
      // No P exceeds 1, however large what scores have lost.
      const double high =
          std::min(row.high[j] * larger * std::exp(std::min(lost, 300.0)),
                   std::exp(std::min(lost, 0.5)));
      const double p = row.p[j] * larger;
      const double low = row.low[j] * std::exp(-lost) * larger;
      const double p_error = std::max(high - p, p - low) +
                             8 * arithmetic_.roundings * unit * high +
                             2 * kF32Normal;
      const double p_narrow = narrowing_.relative * high + narrowing_.absolute;
      const double *d_o = in_.d_o[i], *v = head_.v()[j];
      double dp = 0, dp_magnitude = 0, unnormalized = 0;
      for (int64_t d = 0; d < p_.value_dim; ++d) {
        dp += d_o[d] * v[d];  // (E14)
        dp_magnitude += std::abs(d_o[d] * v[d]);
        unnormalized += arithmetic_.Unnormalized(d_o[d], v[d]);
      }
      const double t = dp - in_.delta[i];
      const double t_error =
          arithmetic_.Sum(p_.value_dim) * dp_magnitude + unnormalized +
          bar_error + p_.value_dim * arithmetic_.least + 2 * unit * std::abs(t);
      const double ds = p * t;  // (E15)
      const double ds_error = p_error * (std::abs(t) + t_error) + p * t_error;
      const double dx = ds * row.slope[j];  // (E16)
      double dx_error = (std::abs(ds) + ds_error) * row.slope_error[j] +
                        ds_error * row.slope[j] + 3 * unit * std::abs(dx) +
                        2 * arithmetic_.least;
      if (p_.softcap.has_value())
        dx_error += arithmetic_.least_slope * (std::abs(t) + t_error);
      const double dx_most = std::abs(dx) + dx_error;
      if (dx_most > narrowing_.most) out_.overflows = true;
      dx_error += narrowing_.relative * dx_most + narrowing_.absolute;

      const int64_t kv_row = (b_ * p_.kv[0].len + j) * p_.kv_heads + kv_head;
      const int64_t q_row = (b_ * p_.q_len + i) * p_.q_heads + h_;
      const auto add = [this](Estimate& to, int64_t at, double a,
                              double a_error, double x) {
        to.value[at] += a * x;
        to.error[at] += a_error * std::abs(x) +
                        (std::abs(a) + a_error) * arithmetic_.Unnormalized(x) +
                        arithmetic_.least;
      };
      for (int64_t d = 0; d < p_.value_dim; ++d)  // (E13)
        add(out_.dv, kv_row * p_.value_dim + d, p,
            p_error + p_narrow + kv_sums * high, d_o[d]);
      const double *q = head_.q()[i], *k = head_.k()[j];
      for (int64_t d = 0; d < p_.head_dim; ++d) {
        add(out_.dq, q_row * p_.head_dim + d, scale * dx,  // (E17)
            std::abs(scale) * (dx_error + q_sums * dx_most), k[d]);
        add(out_.dk, kv_row * p_.head_dim + d, scale * dx,  // (E18)
            std::abs(scale) * (dx_error + kv_sums * dx_most), q[d]);
      }
      // What is lost of sums that are multiplied by the scale afterwards; a
      // GPU's sums of dQ have all but 1 to 2 of a huge one (dq_sum.cuh).
      const double tiny = std::abs(scale) * arithmetic_.least;
      const double left = std::abs(scale) > 0x1p40 ? 2 : std::abs(scale);
      const double tiny_dq = std::max(tiny, left * arithmetic_.least_of_dq);
      for (int64_t d = 0; d < p_.head_dim; ++d) {
        out_.dq.error[q_row * p_.head_dim + d] += tiny_dq;
        out_.dk.error[kv_row * p_.head_dim + d] += tiny;
      }
    }
  }

  const BackwardArgs& args_;
  const Problem& p_;
  const ConstRowView own_lse_;
  const Arithmetic& arithmetic_;
  const int64_t b_, h_;
  const Head<double> head_;
  const HeadUpstream<double> in_;
  const Narrowing narrowing_;
  BackwardEstimate& out_;
};

}  // namespace

BackwardEstimate EstimateBackward(const BackwardArgs& args,
                                  ConstRowView own_lse,
                                  const Arithmetic& arithmetic) {
  const Problem& p = args.problem;
  const int64_t kv_rows = p.batch * p.kv[0].len * p.kv_heads;
  BackwardEstimate out{Zeros(p.batch * p.q_len * p.q_heads * p.head_dim),
                       Zeros(kv_rows * p.head_dim),
                       Zeros(kv_rows * p.value_dim)};
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.q_heads; ++h)
      HeadBackward(args, own_lse, arithmetic, b, h, out).Run();
  return out;
}

}  // namespace attnd::fuzz
