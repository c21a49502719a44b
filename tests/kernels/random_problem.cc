#include "tests/kernels/random_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/dtype.h"
#include "kernels/reference/reference.h"

namespace attnd::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// More of the small and the common, and some that fill no vector.
constexpr int64_t kDims[] = {1,  2,  3,  5,  8,  13, 16,  24,  32, 32,
                             40, 64, 64, 72, 80, 96, 128, 192, 256};

absl::string_view Name(DType dtype) {
  return dtype == DType::kF32 ? "f32" : dtype == DType::kF16 ? "f16" : "bf16";
}

}  // namespace

ProblemOptions ForwardOnly() {
  ProblemOptions options;
  options.backward = false;
  return options;
}

RandomProblem::RandomProblem(uint32_t seed, const ProblemOptions& options)
    : options_(options), seed_(seed), random_(seed) {
  DrawSizes();
  DrawSegments();
  DrawPositions();
  DrawScores();
  DrawBias();
  problem_.kv = segments_;
  DrawUpstream();
}

int64_t RandomProblem::Int(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

bool RandomProblem::Chance(double p) {
  return std::bernoulli_distribution(p)(random_);
}

int64_t RandomProblem::Length(int64_t most) {
  if (options_.empty_sizes && Chance(0.06)) return 0;
  if (Chance(0.2)) return std::min<int64_t>(most, Int(1, 4));
  return Int(1, most);
}

DType RandomProblem::OutputType() {
  return Chance(0.4) ? DType::kF32 : problem_.q.dtype;
}

OwnedTensor RandomProblem::Tokens(int64_t len, absl::Span<const int64_t> lens,
                                  int64_t heads, int64_t dim) {
  OwnedTensor tensor(problem_.q.dtype, problem_.batch, len, heads, dim,
                     heads_first_, gap_);
  for (int64_t b = 0; b < problem_.batch; ++b)
    for (int64_t t = 0; t < (lens.empty() ? len : lens[b]); ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < dim; ++d)
          tensor.Set(b, t, h, d, normal_(random_));
  return tensor;
}

OwnedRows RandomProblem::Rows(double mean, double deviation) {
  OwnedRows rows(problem_.batch, problem_.q_heads, problem_.q_len, gap_);
  for (int64_t b = 0; b < problem_.batch; ++b)
    for (int64_t h = 0; h < problem_.q_heads; ++h)
      for (int64_t i = 0; i < QLen(problem_, b); ++i)
        rows.Set(b, h, i, mean + deviation * normal_(random_));
  return rows;
}

void RandomProblem::DrawSizes() {
  Problem& p = problem_;
  heads_first_ = Chance(0.5);
  gap_ = Chance(0.5) ? 0 : options_.gap_step * Int(1, 9);
  p.batch =
      options_.empty_sizes && Chance(0.02) ? 0 : Int(1, options_.max_batch);
  p.q_len = Length(options_.max_q_len);
  p.kv_heads = Int(1, options_.max_kv_heads);
  p.q_heads = p.kv_heads * Int(1, options_.max_group);
  const auto dim = [&] {
    return std::min(options_.max_dim, kDims[Int(0, std::size(kDims) - 1)]);
  };
  p.head_dim = dim();
  p.value_dim = Chance(0.5) ? p.head_dim : dim();
  if (options_.head_dim != 0) p.head_dim = options_.head_dim;
  if (options_.value_dim != 0) p.value_dim = options_.value_dim;
  p.q.dtype = options_.dtypes[Int(0, options_.dtypes.size() - 1)];
  if (options_.lens && Chance(0.4))
    for (int64_t b = 0; b < p.batch; ++b)
      q_lens_.push_back(Chance(0.3) ? p.q_len : Int(0, p.q_len));
  p.q_lens = q_lens_;
  q_ = Tokens(p.q_len, q_lens_, p.q_heads, p.head_dim);
  p.q = std::as_const(q_).view();
}

void RandomProblem::DrawSegments() {
  const Problem& p = problem_;
  int64_t count = Chance(0.5) ? 1 : Int(1, options_.max_segments);
  if (options_.empty_sizes && Chance(0.02)) count = 0;
  const bool with_lens = options_.lens && Chance(0.4);
  kv_lens_.resize(count);
  kv_starts_.resize(count);
  for (int64_t n = 0; n < count; ++n) {
    KvSegment s;
    s.len = Length(options_.max_kv_len);
    if (with_lens && Chance(0.7))
      for (int64_t b = 0; b < p.batch; ++b)
        kv_lens_[n].push_back(Chance(0.3) ? s.len : Int(0, s.len));
    s.lens = kv_lens_[n];
    k_.push_back(Tokens(s.len, kv_lens_[n], p.kv_heads, p.head_dim));
    v_.push_back(Tokens(s.len, kv_lens_[n], p.kv_heads, p.value_dim));
    segments_.push_back(s);
  }
  for (int64_t n = 0; n < count; ++n) {
    segments_[n].k = std::as_const(k_[n]).view();
    segments_[n].v = std::as_const(v_[n]).view();
  }
}

void RandomProblem::DrawPositions() {
  Problem& p = problem_;
  if (!options_.masks || Chance(0.3)) {
    // One sequence after another, the rows at the end.
    int64_t first = 0;
    for (KvSegment& s : segments_) {
      s.positions.start = first;
      first += s.len;
    }
    return;
  }
  // Anywhere, sometimes at the very ends of what positions can be.
  const int64_t reach = options_.max_q_len + options_.max_kv_len;
  const int64_t most = kMaxPosition - 16 * reach;
  const int64_t base = Chance(0.7)   ? 0
                       : Chance(0.5) ? most
                                     : -kMaxPosition + 8 * reach;
  const int64_t stripes = Chance(0.6) ? 1 : Int(1, 5);
  p.q_stride = Chance(0.6) ? stripes : Int(1, 5);
  const auto start = [&] { return base + Int(-reach, reach); };
  if (Chance(0.5)) {
    p.q_start = start();
  } else {
    for (int64_t b = 0; b < p.batch; ++b) q_starts_.push_back(start());
    p.q_starts = q_starts_;
  }
  for (size_t n = 0; n < segments_.size(); ++n) {
    Positions& positions = segments_[n].positions;
    positions.stride = Chance(0.7) ? stripes : Int(1, 5);
    if (Chance(0.6)) {
      positions.start = start();
    } else {
      for (int64_t b = 0; b < p.batch; ++b) kv_starts_[n].push_back(start());
      positions.starts = kv_starts_[n];
    }
  }
}

void RandomProblem::DrawScores() {
  Problem& p = problem_;
  p.scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  if (options_.odd_scales && Chance(0.25)) {
    const float factors[] = {0.0f, -1.0f, 5.0f, -3.0f, 1e-6f};
    p.scale *= factors[Int(0, std::size(factors) - 1)];
  }
  if (options_.softcap && Chance(0.25))
    p.softcap = std::exp(Int(-4, 14) * 0.25);
  if (!options_.masks) return;
  p.mask.causal = Chance(0.4);
  const int64_t reach = options_.max_kv_len;
  const auto window = [&]() -> int64_t {
    if (Chance(0.65)) return -1;
    return Chance(0.03) ? std::numeric_limits<int64_t>::max() : Int(0, reach);
  };
  p.mask.left = window();
  p.mask.right = window();
}

void RandomProblem::DrawBias() {
  Problem& p = problem_;
  if (!options_.bias || !Chance(0.35)) return;
  int64_t columns = 0;
  for (const KvSegment& s : segments_) columns += s.len;
  const int64_t batches = Chance(0.5) ? 1 : p.batch,
                heads = Chance(0.5) ? 1 : p.q_heads;
  const DType dtype = OutputType();
  const bool holes = Chance(0.3);  // -inf, sometimes a whole row of it
  bias_ = OwnedTensor(dtype, batches, p.q_len, heads, columns, true, gap_);
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < p.q_len; ++i) {
        const bool empty = holes && Chance(0.1);
        int64_t first = 0;
        for (const KvSegment& s : segments_) {
          // With one bias for all, the longest sequence's part is read.
          int64_t len = 0;
          for (int64_t of = 0; of < p.batch; ++of)
            if ((batches == p.batch ? of == b : true) && i < QLen(p, of))
              len = std::max(len, KvLen(s, of));
          for (int64_t j = 0; j < len; ++j)
            bias_.Set(
                b, i, h, first + j,
                empty || (holes && Chance(0.2)) ? -kInf : normal_(random_));
          first += s.len;
        }
      }
    }
  }
  const ConstTensorView view = std::as_const(bias_).view();
  p.bias = {view.data, dtype, batches == p.batch ? view.batch_stride : 0,
            heads == p.q_heads ? view.head_stride : 0, view.token_stride};
}

void RandomProblem::DrawUpstream() {
  const Problem& p = problem_;
  o_dtype_ = OutputType();
  dq_dtype_ = OutputType();
  dk_dtype_ = OutputType();
  dv_dtype_ = OutputType();
  want_o_ = Chance(0.95);
  want_lse_ = !want_o_ || Chance(0.85);
  want_dk_ = Chance(0.9);
  want_dv_ = Chance(0.9);
  want_dq_ = Chance(0.9);
  if (!options_.backward) return;

  d_o_ = Tokens(p.q_len, q_lens_, p.q_heads, p.value_dim);
  const reference::ExactForward exact = reference::OracleForward(p);
  // As a shard of something larger, now and then.
  const bool shard = Chance(0.3);
  const bool with_delta = Chance(0.5);
  lse_ = Rows(0, 1);
  delta_ = Rows(0, 1);
  if (Chance(0.3)) d_lse_ = Rows(0, 1);
  o_ = OwnedTensor(OutputType(), p.batch, p.q_len, p.q_heads, p.value_dim,
                   heads_first_, gap_);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.q_heads; ++h) {
      for (int64_t i = 0; i < QLen(p, b); ++i) {
        const double lse = exact.lse[(b * p.q_heads + h) * p.q_len + i];
        const double other = shard ? lse_.Get(b, h, i) : -kInf;
        const double most = std::max(lse, other);
        lse_.Set(b, h, i,
                 most == -kInf ? most
                               : most + std::log(std::exp(lse - most) +
                                                 std::exp(other - most)));
        double delta = 0;
        for (int64_t d = 0; d < p.value_dim; ++d) {
          o_.Set(
              b, i, h, d,
              exact.o[((b * p.q_len + i) * p.q_heads + h) * p.value_dim + d]);
          delta += o_.Get(b, i, h, d) * d_o_.Get(b, i, h, d);
        }
        delta_.Set(b, h, i, delta);
      }
    }
  }
  if (with_delta)
    o_ = OwnedTensor();
  else
    delta_ = OwnedRows();
}

RandomProblem::ForwardOutputs RandomProblem::MakeForwardOutputs() const {
  const Problem& p = problem_;
  ForwardOutputs out;
  if (want_o_)
    out.o = OwnedTensor(o_dtype_, p.batch, p.q_len, p.q_heads, p.value_dim,
                        heads_first_, gap_);
  if (want_lse_) out.lse = OwnedRows(p.batch, p.q_heads, p.q_len, gap_);
  return out;
}

RandomProblem::BackwardOutputs RandomProblem::MakeBackwardOutputs() const {
  const Problem& p = problem_;
  BackwardOutputs out;
  if (want_dq_)
    out.dq = OwnedTensor(dq_dtype_, p.batch, p.q_len, p.q_heads, p.head_dim,
                         heads_first_, gap_);
  out.dk.resize(segments_.size());
  out.dv.resize(segments_.size());
  for (size_t n = 0; n < segments_.size(); ++n) {
    const int64_t len = segments_[n].len;
    if (want_dk_)
      out.dk[n] = OwnedTensor(dk_dtype_, p.batch, len, p.kv_heads, p.head_dim,
                              heads_first_, gap_);
    if (want_dv_)
      out.dv[n] = OwnedTensor(dv_dtype_, p.batch, len, p.kv_heads, p.value_dim,
                              heads_first_, gap_);
  }
  return out;
}

ForwardArgs RandomProblem::Forward(ForwardOutputs& out) const {
  ForwardArgs args;
  args.problem = problem_;
  args.o = out.o.view();
  args.lse = out.lse.view();
  return args;
}

BackwardArgs RandomProblem::Backward(BackwardOutputs& out) const {
  out.segments = segments_;
  for (size_t n = 0; n < segments_.size(); ++n) {
    out.segments[n].dk = out.dk[n].view();
    out.segments[n].dv = out.dv[n].view();
  }
  BackwardArgs args;
  args.problem = problem_;
  args.problem.kv = out.segments;
  args.d_o = d_o_.view();
  args.lse = lse_.view();
  args.o = o_.view();
  args.delta = delta_.view();
  args.d_lse = d_lse_.view();
  args.dq = out.dq.view();
  return args;
}

bool RandomProblem::IsLarge() const {
  const Problem& p = problem_;
  int64_t columns = 0;
  for (const KvSegment& s : p.kv) columns += s.len;
  return p.batch * p.q_heads * p.q_len >= 256 && p.q_len >= 64 &&
         columns >= 64 && p.head_dim >= 16 && p.value_dim >= 16;
}

std::string RandomProblem::Describe() const {
  const Problem& p = problem_;
  std::string text =
      absl::StrCat("seed ", seed_, ": ", Name(p.dtype()), " batch ", p.batch,
                   " q_len ", p.q_len, " heads ", p.q_heads, "/", p.kv_heads,
                   " dims ", p.head_dim, "/", p.value_dim, " segments [",
                   absl::StrJoin(segments_, ", ",
                                 [](std::string* out, const KvSegment& s) {
                                   absl::StrAppend(out, s.len);
                                 }),
                   "] scale ", p.scale);
  if (!q_lens_.empty())
    absl::StrAppend(&text, " q_lens [", absl::StrJoin(q_lens_, ","), "]");
  for (const auto& lens : kv_lens_)
    if (!lens.empty())
      absl::StrAppend(&text, " kv_lens [", absl::StrJoin(lens, ","), "]");
  if (p.mask.causal) absl::StrAppend(&text, " causal");
  if (p.mask.left >= 0) absl::StrAppend(&text, " left ", p.mask.left);
  if (p.mask.right >= 0) absl::StrAppend(&text, " right ", p.mask.right);
  if (p.softcap.has_value()) absl::StrAppend(&text, " softcap ", *p.softcap);
  if (p.bias) absl::StrAppend(&text, " bias ", Name(p.bias.dtype));
  if (p.q_stride != 1) absl::StrAppend(&text, " q_stride ", p.q_stride);
  if (heads_first_) absl::StrAppend(&text, " heads first");
  if (gap_ != 0) absl::StrAppend(&text, " gap ", gap_);
  return text;
}

}  // namespace attnd::testing
