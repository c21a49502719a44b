#include "tests/service_fuzz/generate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "tests/service_fuzz/entries.h"
#include "tests/service_fuzz/random.h"
#include "tests/service_fuzz/shape.h"

namespace attnd::fuzz {
namespace {

class Generator {
 public:
  Generator(uint64_t seed, uint64_t index, const Limits& limits)
      : limits_(limits), random_(seed, index) {
    p_.seed = seed;
    p_.index = index;
  }

  FuzzProblem Draw() {
    constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
    p_.q.dtype = dtype_ = random_.Of(kTypes);
    DrawShape(p_, limits_, random_);
    DrawScale();
    DrawQK();
    DrawV();
    DrawBias();
    DrawForward();
    DrawBackward();
    if (limits_.plans) DrawPlan();
    return std::move(p_);
  }

 private:
  DType OutputType() { return random_.Chance(0.4) ? DType::kF32 : dtype_; }

  void DrawScale() {
    client::Attention& a = p_.attention;
    const double usual = 1 / std::sqrt(static_cast<double>(p_.head_dim));
    constexpr double kFactors[] = {0, 1, -1, 5, -3, 1e-6, 0.1};
    const double what = random_.Real(0, 1);
    scale_ = usual;
    if (what > 0.5) {
      scale_ = what < 0.6 ? usual * random_.Of(kFactors)
                          : random_.Magnitude(-30, 30) * random_.Sign();
      a.scale = static_cast<float>(scale_);
    }
    if (random_.Chance(0.25)) {
      constexpr double kCaps[] = {1e-3, 0.1, 1, 1, 5, 30, 30, 50, 1e4, 1e30};
      a.softcap = static_cast<float>(random_.Of(kCaps));
    }
  }

  // Whether sums of these have terms that differ.
  void Note(Entries entries) {
    p_.alike |= entries != Entries::kNormal && entries != Entries::kOutlier;
  }

  Entries AnyEntries(double normal) {
    constexpr Entries kRare[] = {Entries::kConstant, Entries::kTokenConstants,
                                 Entries::kOneHot,   Entries::kSubnormal,
                                 Entries::kOutlier,  Entries::kSparse};
    return random_.Chance(normal) ? Entries::kNormal : random_.Of(kRare);
  }

  // How large scores are to be.
  double ScoreSize() {
    const double what = random_.Real(0, 1);
    if (what < 0.6) return random_.Magnitude(-1, 0.7);
    if (what < 0.75) return random_.Magnitude(2, 4);
    if (what < 0.85) return random_.Magnitude(0.7, 2);
    if (what < 0.92) return random_.Magnitude(4, 8);
    if (what < 0.96) return random_.Magnitude(8, 36);
    return random_.Magnitude(-8, -1);
  }

  void DrawQK() {
    if (random_.Chance(0.04)) {
      scale_ = FillOutOfRange(p_, scale_, random_);
      p_.attention.scale = static_cast<float>(scale_);
      saturates_ = p_.alike = true;
      absl::StrAppend(&p_.kind, "scores out of range");
      return;
    }
    if (p_.kv_len > 0 && random_.Chance(p_.kv_len > 64 ? 0.3 : 0.05)) {
      FillJumps(p_, scale_, random_);
      p_.alike = true;
      absl::StrAppend(&p_.kind, "jumps");
    } else {
      const double size = ScoreSize();
      const Entries q = AnyEntries(0.75);
      Entries k = random_.Chance(0.7) ? q : AnyEntries(0.6);
      if (q == Entries::kSubnormal) k = AnyEntries(0.8);
      Note(q);
      Note(k);
      const double product = size / (scale_ == 0 ? 1 : std::abs(scale_)) /
                             std::sqrt(static_cast<double>(p_.head_dim));
      const double least = 2 * LeastNormal(dtype_);
      const double most = dtype_ == DType::kF16 ? 1e4 : 1e18;
      double of_q = std::sqrt(product) * random_.Magnitude(-1, 1);
      of_q = q == Entries::kSubnormal ? LeastNormal(dtype_) / 30
                                      : std::clamp(of_q, least, most);
      const double of_k = std::clamp(product / of_q, least, most);
      p_.q = Fill(p_, true, dtype_, p_.head_dim, q, of_q, random_);
      p_.k = Fill(p_, false, dtype_, p_.head_dim, k, of_k, random_);
      absl::StrAppend(&p_.kind, "scores of ", size, ", q ", Name(q), " ", of_q,
                      ", k ", Name(k), " ", of_k);
      // Scores that all reach the cap are equal.
      p_.alike |= size > 2 * p_.attention.softcap.value_or(HUGE_VALF);
      p_.ordinary = q == Entries::kNormal && k == Entries::kNormal &&
                    of_q > 100 * least && of_k > 100 * least;
      // What they are, where the type did not allow what they were to be.
      const double drawn = of_q * of_k * std::abs(scale_) *
                           std::sqrt(static_cast<double>(p_.head_dim));
      p_.spread = drawn < 2;
      p_.ordinary &=
          drawn > 0.1 && drawn < 6 && p_.attention.softcap.value_or(1) >= 1;
    }
    const double most = static_cast<double>(p_.head_dim) * Most(p_.q) *
                        Most(p_.k) * std::max(1.0, std::abs(scale_));
    if (most > kMostProduct) Scale(p_.k, kMostProduct / most);
  }

  void DrawV() {
    const Entries v = AnyEntries(0.7);
    Note(v);
    const bool f16 = dtype_ == DType::kF16;
    const double size = random_.Chance(0.6) ? 1
                        : f16               ? random_.Magnitude(-4, 4)
                                            : random_.Magnitude(-20, 30);
    p_.v = Fill(p_, false, dtype_, p_.value_dim, v, size, random_);
    p_.ordinary &= v == Entries::kNormal && (!f16 || size >= 0.1);
    absl::StrAppend(&p_.kind, ", v ", Name(v), " ", size);
    v_most_ = Most(p_.v);
    if (v_most_ > kMostValue) Scale(p_.v, kMostValue / v_most_);
    v_most_ = std::min(v_most_, kMostValue);
  }

  void DrawBias() {
    if (!random_.Chance(0.2)) return;
    p_.bias = Buffer(OutputType(), {random_.Chance(0.5) ? 1 : p_.batch,
                                    random_.Chance(0.5) ? 1 : p_.q_heads,
                                    p_.q_len, p_.kv_len});
    const double size =
        random_.Chance(0.7) ? random_.Real(0, 3) : random_.Magnitude(1, 4);
    const double holes = random_.Chance(0.4) ? random_.Real(0, 1) : 0;
    const int64_t row = std::max<int64_t>(1, p_.kv_len);
    bool empty = false;
    for (int64_t i = 0; i < p_.bias.size(); ++i) {
      if (i % row == 0) empty = holes > 0 && random_.Chance(0.1);
      const bool hole = empty || (holes > 0 && random_.Chance(holes));
      p_.bias.Set(i, hole ? -HUGE_VAL : size * random_.Normal());
    }
    absl::StrAppend(&p_.kind, ", bias ", size, " with ", holes, " -inf");
    p_.ordinary &= size <= 3 && holes < 0.5;
  }

  void DrawForward() {
    constexpr client::Algorithm kOthers[] = {
        client::Algorithm::kNaive, client::Algorithm::kOnlineSoftmax,
        client::Algorithm::kFlashAttention1,
        client::Algorithm::kFlashAttention2};
    if (random_.Chance(0.06)) p_.algorithm = random_.Of(kOthers);
    p_.o_dtype = OutputType();
    const double what = random_.Real(0, 1);
    p_.want_o = what > 0.04;
    p_.want_lse = what < 0.04 || what > 0.08;
  }

  void DrawBackward() {
    p_.backward = p_.want_o && p_.want_lse && random_.Chance(0.85);
    if (!p_.backward) return;
    p_.give_delta = random_.Chance(0.3);
    p_.larger = random_.Chance(0.15);
    p_.deterministic = random_.Chance(0.3);
    p_.want_dq = random_.Chance(0.9);
    p_.want_dk = random_.Chance(0.9);
    p_.want_dv = random_.Chance(0.9);
    if (!p_.want_dq && !p_.want_dk && !p_.want_dv) p_.want_dq = true;
    p_.dq_dtype = OutputType();
    p_.dk_dtype = OutputType();
    p_.dv_dtype = OutputType();
    const Entries d_o = AnyEntries(0.8);
    Note(d_o);
    const bool f16 = dtype_ == DType::kF16;
    const double size = random_.Chance(0.5) ? 1
                        : f16               ? random_.Magnitude(-5, 3)
                                            : random_.Magnitude(-20, 20);
    p_.d_o = Fill(p_, true, dtype_, p_.value_dim, d_o, size, random_);
    p_.ordinary &= d_o == Entries::kNormal && (!f16 || size >= 0.1);
    absl::StrAppend(&p_.kind, ", d_o ", Name(d_o), " ", size);
    // dS, and all that is summed up of it.
    const double ds = 2 * static_cast<double>(p_.value_dim) * Most(p_.d_o) *
                      std::max(v_most_, 1e-30);
    const double along = std::max({Most(p_.q), Most(p_.k), 1.0}) *
                         std::max(1.0, std::abs(scale_)) *
                         std::max(p_.q_len * p_.q_heads, p_.kv_len);
    double factor = std::min(1.0, kMostProduct / (ds * along));
    if (f16) factor = std::min(factor, 3e4 / ds);
    if (factor < 1) Scale(p_.d_o, factor);
    // Sums of dS * q and dS * k, before a huge scale multiplies them, are far
    // above f32's least normal number, below which errors are no statistics.
    constexpr double kLeastProduct = 1e-30;
    p_.ordinary &=
        Most(p_.d_o) * Most(p_.v) * std::min(Most(p_.q), Most(p_.k)) >
        kLeastProduct;
    if (!random_.Chance(0.25)) return;
    p_.d_lse = Buffer(DType::kF32, p_.RowShape());
    // It is part of dS, too.
    const double of_lse = std::min(size * factor * random_.Magnitude(-2, 0),
                                   kMostProduct / (10 * along));
    for (int64_t i = 0; i < p_.d_lse.size(); ++i)
      p_.d_lse.Set(i, of_lse * random_.Normal());
  }

  // Last, so that the rest is what it is without. An LSE does not say how many
  // scores count as the largest f32, so results cannot be merged by it then.
  void DrawPlan() {
    constexpr client::Plan kPlans[] = {
        client::Plan::kOneDevice, client::Plan::kHeads,   client::Plan::kGather,
        client::Plan::kRing,      client::Plan::kStriped, client::Plan::kZigzag,
        client::Plan::kKv};
    if (random_.Chance(0.5)) p_.plan = random_.Of(kPlans);
    if (saturates_ && Merges(p_.plan)) p_.plan = client::Plan::kGather;
  }

  const Limits limits_;
  Random random_;
  FuzzProblem p_;
  DType dtype_ = DType::kF32;
  double scale_ = 1, v_most_ = 0;
  bool saturates_ = false;  // scores leave f32's range
};

}  // namespace

FuzzProblem Generate(uint64_t seed, uint64_t index, const Limits& limits) {
  return Generator(seed, index, limits).Draw();
}

}  // namespace attnd::fuzz
