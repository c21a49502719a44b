#include "tests/service_fuzz/entries.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace attnd::fuzz {

const char* Name(Entries entries) {
  constexpr const char* kNames[] = {"normal",  "constant",  "token constants",
                                    "one-hot", "subnormal", "outlier",
                                    "sparse"};
  return kNames[static_cast<int>(entries)];
}

double LeastNormal(DType dtype) {
  return dtype == DType::kF16 ? 0x1p-14 : 0x1p-126;
}

double MostDrawn(DType dtype) { return dtype == DType::kF16 ? 6e4 : 1e33; }

void ForEachToken(const FuzzProblem& p, bool of_q, int64_t heads, int64_t dim,
                  const std::function<void(int64_t b, int64_t t, int64_t h,
                                           int64_t i)>& fill) {
  const int64_t padded = of_q ? p.q_len : p.kv_len;
  int64_t first = 0;  // token, when packed
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t len = of_q ? p.QLenOf(b) : p.KvLenOf(b);
    for (int64_t t = 0; t < len; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        int64_t row = ((first + t) * heads + h);
        if (p.attention.layout == client::Layout::kBshd)
          row = (b * padded + t) * heads + h;
        if (p.attention.layout == client::Layout::kBhsd)
          row = (b * heads + h) * padded + t;
        fill(b, t, h, row * dim);
      }
    }
    first += len;
  }
}

Buffer Fill(const FuzzProblem& p, bool of_q, DType dtype, int64_t dim,
            Entries entries, double magnitude, Random& random) {
  const int64_t heads = of_q ? p.q_heads : p.kv_heads;
  std::vector<int64_t> shape = p.TokenShape(of_q, dim);
  Buffer tensor(dtype, shape);
  const double constant = magnitude * random.Sign() * random.Real(0.5, 2);
  double few[3];
  for (double& x : few) x = magnitude * random.Normal();
  const double least = dtype == DType::kF16    ? 0x1p-24
                       : dtype == DType::kBF16 ? 0x1p-133
                                               : 0x1p-149;
  const double steps = LeastNormal(dtype) / least;
  const int64_t len = of_q ? p.q_len : p.kv_len;
  const int64_t outlier = len > 0 ? random.Int(0, len - 1) : 0;
  const double larger = random.Magnitude(1, 3);
  const double most = MostDrawn(dtype);
  ForEachToken(
      p, of_q, heads, dim, [&](int64_t, int64_t t, int64_t, int64_t i) {
        const int64_t hot = random.Int(0, dim - 1);
        const double token = random.Of(few);
        for (int64_t d = 0; d < dim; ++d) {
          double x = 0;
          switch (entries) {
            case Entries::kNormal:
              x = magnitude * random.Normal();
              break;
            case Entries::kConstant:
              x = constant;
              break;
            case Entries::kTokenConstants:
              x = token;
              break;
            case Entries::kOneHot:
              x = d == hot ? magnitude * random.Sign() : 0;
              break;
            case Entries::kSubnormal:
              x = random.Sign() * least *
                  std::floor(std::exp(random.Real(0, std::log(steps))));
              break;
            case Entries::kOutlier:
              x = magnitude * random.Normal() * (t == outlier ? larger : 1);
              break;
            case Entries::kSparse:
              x = random.Chance(0.8) ? 0 : magnitude * random.Normal();
              break;
          }
          tensor.Set(i + d, std::clamp(x, -most, most));
        }
      });
  return tensor;
}

namespace {

// The scores of a sequence's columns: level, but for a few that jump.
std::vector<double> JumpingScores(int64_t columns, Random& random) {
  const double base = random.Chance(0.5) ? 0 : random.Real(-300, 300);
  const double noise = random.Chance(0.5) ? 0 : random.Magnitude(-2, 1);
  std::vector<double> scores(columns);
  for (double& s : scores) s = base + noise * random.Normal();
  if (columns == 0) return scores;
  const int64_t jumps = random.Int(1, 3);
  for (int64_t n = 0; n < jumps; ++n) {
    int64_t at = random.Int(0, columns - 1);
    if (random.Chance(0.7)) {  // a tile's last, first or second column
      at = random.Int(columns > 66, columns / 64) * 64 + random.Int(-1, 1);
      at = std::clamp<int64_t>(at, 0, columns - 1);
    }
    // From the largest before; e^-88 leaves f32.
    double jump =
        random.Chance(0.4) ? random.Real(87, 89) : random.Real(0, 400);
    if (random.Chance(0.2)) jump = -jump;
    if (at > 0)
      jump += *std::max_element(scores.begin(), scores.begin() + at) - base;
    // One column, or all from there on.
    const int64_t end = random.Chance(0.6) ? at + 1 : columns;
    for (int64_t j = at; j < end; ++j) scores[j] += jump;
  }
  return scores;
}

}  // namespace

void FillJumps(FuzzProblem& p, double scale, Random& random) {
  const DType dtype = p.dtype();
  // What of Q makes |scale q| 1, as far as the type allows.
  const double most = MostDrawn(dtype), least = 4 * LeastNormal(dtype);
  const double size = std::clamp(scale == 0 ? 1.0 : 1 / std::abs(scale), least,
                                 std::min(most, 1e18));
  const int64_t along = random.Int(0, p.head_dim - 1);
  const double noise = random.Chance(0.5) ? 0 : random.Magnitude(-3, -1);
  constexpr double kRows[] = {1, 1, 1, 0.5, -1, 0};
  const bool alike = random.Chance(0.5);
  p.q = Buffer(dtype, p.TokenShape(true, p.head_dim));
  p.k = Buffer(dtype, p.TokenShape(false, p.head_dim));
  ForEachToken(p, true, p.q_heads, p.head_dim,
               [&](int64_t, int64_t, int64_t, int64_t i) {
                 const double row = alike ? 1 : random.Of(kRows);
                 for (int64_t d = 0; d < p.head_dim; ++d)
                   p.q.Set(i + d, d == along ? row * size
                                             : noise * size * random.Normal());
               });
  std::vector<std::vector<double>> scores(p.batch * p.kv_heads);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.kv_heads; ++h)
      scores[b * p.kv_heads + h] = JumpingScores(p.KvLenOf(b), random);
  ForEachToken(p, false, p.kv_heads, p.head_dim,
               [&](int64_t b, int64_t t, int64_t h, int64_t i) {
                 const double score = scores[b * p.kv_heads + h][t];
                 const double x = scale == 0 ? score : score / (scale * size);
                 for (int64_t d = 0; d < p.head_dim; ++d)
                   p.k.Set(i + d,
                           std::clamp(d == along ? x : noise * random.Normal(),
                                      -most, most));
               });
}

double FillOutOfRange(FuzzProblem& p, double scale, Random& random) {
  const DType dtype = p.dtype();
  const bool by_scale =
      dtype == DType::kF16 || scale == 0 || random.Chance(0.4);
  if (by_scale)
    scale =
        random.Sign() * std::ldexp(1.25, static_cast<int>(random.Int(97, 101)));
  const int64_t along = random.Int(0, p.head_dim - 1);
  const double size =
      std::ldexp(1.0, static_cast<int>(by_scale ? 13 : random.Int(56, 62)));
  constexpr double kRows[] = {1, 1, 1, 0.5, -1, 0};
  const auto fill = [&](bool of_q, const std::function<double()>& draw) {
    Buffer& tensor = of_q ? p.q : p.k;
    tensor = Buffer(dtype, p.TokenShape(of_q, p.head_dim));
    ForEachToken(p, of_q, of_q ? p.q_heads : p.kv_heads, p.head_dim,
                 [&](int64_t, int64_t, int64_t, int64_t i) {
                   const double x = draw();
                   for (int64_t d = 0; d < p.head_dim; ++d)
                     tensor.Set(i + d, d == along ? x : 0);
                 });
  };
  fill(true, [&] { return size * random.Of(kRows); });
  // Few columns that differ, or many; all of a row's may be below the range.
  const int64_t most = by_scale ? 15 : 74;
  const int64_t least = most - random.Int(0, 8);
  const double sign = random.Chance(0.3) ? 0 : random.Sign();
  fill(false, [&] {
    return (sign == 0 ? random.Sign() : sign) *
           std::ldexp(1.5, static_cast<int>(random.Int(least, most)));
  });
  return scale;
}

double Most(const Buffer& tensor) {
  double most = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double x = std::abs(tensor.Get(i));
    if (x > most) most = x;
  }
  return most;
}

void Scale(Buffer& tensor, double factor) {
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.Set(i, tensor.Get(i) * factor);
}

}  // namespace attnd::fuzz
