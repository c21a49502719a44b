#include "client/attnload/row_check.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/attnload/row_mask.h"
#include "client/element.h"

namespace attnd::attnload {
namespace {

const double kU32 = UnitRoundoff(client::DType::kF32);
// The relative error of an exp in f32, in units of kU32: of the function, and
// of reducing its argument.
constexpr double kExpRoundings = 8;

using Row = std::vector<double>;

// Rounding a number next to zero costs this in any case.
double LeastRounding(client::DType dtype) {
  return dtype == client::DType::kF16 ? 0x1p-25 : 0x1p-126;
}

// One (batch, query head) of a payload in double.
class Head {
 public:
  Head(const Payload& payload, int64_t b, int64_t h)
      : payload_(payload), s_(payload.shape()), b_(b), h_(h) {
    kv_h_ = h / (s_.q_heads / s_.kv_heads);
    scale_ = 1 / std::sqrt(double(s_.head_dim));
    // P, and dS, may be rounded to the input's type before a product.
    u_in_ = UnitRoundoff(s_.dtype);
    least_ = LeastRounding(s_.dtype);
  }

  Row Q(int64_t i) const {
    return Load(payload_.q(), (b_ * s_.q_len + i) * s_.q_heads + h_,
                s_.head_dim);
  }
  Row K(int64_t j) const {
    return Load(payload_.k(), (b_ * s_.kv_len + j) * s_.kv_heads + kv_h_,
                s_.head_dim);
  }
  Row V(int64_t j) const {
    return Load(payload_.v(), (b_ * s_.kv_len + j) * s_.kv_heads + kv_h_,
                s_.value_dim);
  }
  Row DO(int64_t i) const { return LoadO(payload_.d_o(), i); }
  Row O(int64_t i) const { return LoadO(payload_.o(), i); }
  double Lse(int64_t i) const {
    return payload_.lse()[(b_ * s_.q_heads + h_) * s_.q_len + i];
  }

  double scale() const { return scale_; }
  // What rounding `x` to the input's type may cost.
  double Rounding(double x) const { return u_in_ * std::abs(x) + least_; }
  const Shape& shape() const { return s_; }

 private:
  Row LoadO(const std::byte* data, int64_t i) const {
    return Load(data, (b_ * s_.q_len + i) * s_.q_heads + h_, s_.value_dim);
  }
  Row Load(const std::byte* data, int64_t row, int64_t dim) const {
    Row values(dim);
    for (int64_t d = 0; d < dim; ++d) {
      values[d] = client::LoadElement(s_.dtype, data, row * dim + d);
    }
    return values;
  }

  const Payload& payload_;
  const Shape& s_;
  int64_t b_, h_, kv_h_;
  double scale_, u_in_, least_;
};

// sum x y, and what computing it in f32 may be off by.
struct Product {
  double value = 0, error = 0;
};
Product Dot(const Row& x, const Row& y) {
  Product product;
  for (size_t d = 0; d < x.size(); ++d) {
    product.value += x[d] * y[d];
    product.error += std::abs(x[d] * y[d]);
  }
  product.error *= kU32 * double(x.size() + 2);
  return product;
}

// A vector under summation, with each element's sum of sizes.
struct Sum {
  explicit Sum(int64_t dim) : value(dim), error(dim), size(dim) {}

  // Adds weight * row; the weight may be off by weight_error.
  void Add(double weight, double weight_error, const Row& row) {
    ++terms;
    for (size_t d = 0; d < row.size(); ++d) {
      value[d] += weight * row[d];
      size[d] += std::abs(weight * row[d]);
      error[d] += weight_error * std::abs(row[d]);
    }
  }
  // The bound of an element that is multiplied by `scale` (>= 0), and rounded
  // to a type at last: what that rounding costs at least is not scaled.
  double Bound(int64_t d, double scale, client::DType dtype) const {
    const double sum_error =
        scale * (error[d] + double(terms + 4) * kU32 * size[d]);
    return sum_error + LeastRounding(dtype) +
           UnitRoundoff(dtype) * (scale * std::abs(value[d]) + sum_error);
  }

  Row value, error, size;
  int64_t terms = 0;
};

void Compare(double got, double want, double bound, const std::string& where,
             RowVerdict& verdict) {
  ++verdict.elements;
  const double error = got == want ? 0 : std::abs(got - want);
  // Second-order terms are left out of every bound.
  double share = error == 0 ? 0 : error / (1.01 * bound);
  if (std::isnan(share)) share = INFINITY;
  if (share <= verdict.worst) return;
  verdict.worst = share;
  verdict.where = absl::StrFormat("%s: %.9g, should be %.9g", where, got, want);
}

// Row [b, t, h] of a tensor [batch, length, heads, dim] of an answer.
struct AnswerRow {
  const char* name;
  client::DType dtype;
  const std::byte* data;
  int64_t length, heads;
  int64_t b, t, h;

  int64_t index() const { return (b * length + t) * heads + h; }
  std::string At(int64_t d) const {
    return absl::StrCat(name, "[", b, ", ", t, ", ", h, ", ", d, "]");
  }
};

// Compares a row with scale * sum.
void CheckRow(const AnswerRow& row, const Sum& sum, double scale,
              RowVerdict& verdict) {
  const int64_t dim = int64_t(sum.value.size());
  for (int64_t d = 0; d < dim; ++d) {
    Compare(client::LoadElement(row.dtype, row.data, row.index() * dim + d),
            scale * sum.value[d], sum.Bound(d, scale, row.dtype), row.At(d),
            verdict);
  }
}

// Row i of O and LSE.
void CheckForward(const Payload& payload, const Answer& answer, int64_t b,
                  int64_t h, int64_t i, RowVerdict& verdict) {
  const Head head(payload, b, h);
  const Shape& s = head.shape();
  const Columns columns = ColumnsOfRow(s, i);
  const Row q = head.Q(i);
  Row scores;
  double max = -INFINITY, score_error = 0;
  for (int64_t j = columns.begin; j < columns.end; ++j) {
    const Product product = Dot(q, head.K(j));
    scores.push_back(product.value * head.scale());
    max = std::max(max, scores.back());
    score_error = std::max(score_error, head.scale() * product.error +
                                            4 * kU32 * std::abs(scores.back()));
  }
  double total = 0;
  for (double score : scores) total += std::exp(score - max);
  const double lse = columns.size() == 0 ? -INFINITY : max + std::log(total);
  // Of a probability before normalisation, and of the sum of them.
  const double p_error =
      score_error + kExpRoundings * kU32 + 2 * kU32 * std::abs(lse - max);
  const double total_error = p_error + double(scores.size()) * kU32;

  Sum o(s.value_dim);
  for (size_t n = 0; n < scores.size(); ++n) {
    const double p = std::exp(scores[n] - lse);
    o.Add(p, p * (p_error + total_error) + head.Rounding(p),
          head.V(columns.begin + int64_t(n)));
  }
  CheckRow({"o", s.dtype, answer.a.data(), s.q_len, s.q_heads, b, i, h}, o, 1,
           verdict);
  Compare(answer.rows[(b * s.q_heads + h) * s.q_len + i], lse,
          columns.size() == 0
              ? 0
              : score_error + total_error +
                    kExpRoundings * kU32 * (1 + std::abs(lse) + std::abs(max)),
          absl::StrCat("lse[", b, ", ", h, ", ", i, "]"), verdict);
}

// P and dS at (i, j), with what they may be off by.
struct Pair {
  double p = 0, p_error = 0, ds = 0, ds_error = 0;
};
Pair Backward(const Head& head, int64_t i, const Row& q, const Row& k,
              const Row& v, const Row& d_o) {
  const Product score = Dot(q, k), dp = Dot(d_o, v),
                delta = Dot(d_o, head.O(i));
  const double s = score.value * head.scale(), lse = head.Lse(i);
  Pair pair;
  pair.p = std::exp(s - lse);
  pair.p_error = pair.p * (head.scale() * score.error + kExpRoundings * kU32 +
                           4 * kU32 * (std::abs(s) + std::abs(lse)));
  // No forward gives an LSE below a score: P may be 1 as well then.
  if (s > lse) {
    pair.p_error += (pair.p - 1) / 2;
    pair.p = (pair.p + 1) / 2;
  }
  const double inner = dp.value - delta.value;
  pair.ds = pair.p * inner;
  pair.ds_error =
      pair.p_error * std::abs(inner) +
      pair.p * (dp.error + delta.error + 2 * kU32 * std::abs(inner));
  // Both are rounded before the next product.
  pair.p_error += head.Rounding(pair.p);
  pair.ds_error += head.Rounding(pair.ds);
  return pair;
}

// Row i of dQ.
void CheckDq(const Payload& payload, const Answer& answer, int64_t b, int64_t h,
             int64_t i, RowVerdict& verdict) {
  const Head head(payload, b, h);
  const Shape& s = head.shape();
  const Columns columns = ColumnsOfRow(s, i);
  const Row q = head.Q(i), d_o = head.DO(i);
  Sum dq(s.head_dim);
  for (int64_t j = columns.begin; j < columns.end; ++j) {
    const Row k = head.K(j);
    const Pair pair = Backward(head, i, q, k, head.V(j), d_o);
    dq.Add(pair.ds, pair.ds_error, k);
  }
  CheckRow({"dq", s.dtype, answer.a.data(), s.q_len, s.q_heads, b, i, h}, dq,
           head.scale(), verdict);
}

// Row j of dK and dV.
void CheckDkDv(const Payload& payload, const Answer& answer, int64_t b,
               int64_t kv_h, int64_t j, RowVerdict& verdict) {
  const Shape& s = payload.shape();
  const int64_t group = s.q_heads / s.kv_heads;
  Sum dk(s.head_dim), dv(s.value_dim);
  for (int64_t h = kv_h * group; h < (kv_h + 1) * group; ++h) {
    const Head head(payload, b, h);
    const Row k = head.K(j), v = head.V(j);
    for (int64_t i = 0; i < s.q_len; ++i) {
      const Columns columns = ColumnsOfRow(s, i);
      if (j < columns.begin || j >= columns.end) continue;
      const Row q = head.Q(i), d_o = head.DO(i);
      const Pair pair = Backward(head, i, q, k, v, d_o);
      dk.Add(pair.ds, pair.ds_error, q);
      dv.Add(pair.p, pair.p_error, d_o);
    }
  }
  CheckRow({"dk", s.dtype, answer.b.data(), s.kv_len, s.kv_heads, b, j, kv_h},
           dk, 1 / std::sqrt(double(s.head_dim)), verdict);
  CheckRow({"dv", s.dtype, answer.c.data(), s.kv_len, s.kv_heads, b, j, kv_h},
           dv, 1, verdict);
}

}  // namespace

double UnitRoundoff(client::DType dtype) {
  switch (dtype) {
    case client::DType::kF32:
      return std::ldexp(1.0, -24);
    case client::DType::kF16:
      return std::ldexp(1.0, -11);
    case client::DType::kBF16:
      return std::ldexp(1.0, -8);
  }
  return 0;
}

void RowVerdict::Merge(const RowVerdict& other) {
  elements += other.elements;
  if (other.worst > worst) {
    worst = other.worst;
    where = other.where;
  }
}

RowVerdict CheckRows(const Payload& payload, const Answer& answer, int rows,
                     std::mt19937_64& random) {
  const Shape& s = payload.shape();
  const auto below = [&random](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  };
  RowVerdict verdict;
  for (int n = 0; n < rows; ++n) {
    const int64_t b = below(s.batch), h = below(s.q_heads), i = below(s.q_len);
    if (!s.backward) {
      CheckForward(payload, answer, b, h, i, verdict);
      continue;
    }
    CheckDq(payload, answer, b, h, i, verdict);
    CheckDkDv(payload, answer, b, below(s.kv_heads), below(s.kv_len), verdict);
  }
  return verdict;
}

}  // namespace attnd::attnload
