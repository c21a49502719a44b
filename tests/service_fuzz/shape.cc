#include "tests/service_fuzz/shape.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace attnd::fuzz {
namespace {

// Around what kernels cut at, and what fills no vector.
constexpr int64_t kLens[] = {1,   2,   3,   4,   5,   7,   8,   9,   15,  16,
                             17,  31,  32,  33,  47,  63,  64,  65,  66,  95,
                             96,  97,  100, 127, 128, 129, 130, 191, 192, 193,
                             255, 256, 257, 300, 383, 384, 385, 511, 512, 513};
constexpr int64_t kManyLens[] = {200,  255,  256,  257,  511,  512,
                                 513,  700,  1023, 1024, 1025, 1500,
                                 2047, 2048, 2049, 4096};
constexpr int64_t kDims[] = {
    1,  2,  3,  7,  8,  9,  15,  16,  17,  24,  31,  32,  33,  40,  48,  63, 64,
    64, 65, 72, 80, 96, 97, 112, 127, 128, 128, 129, 160, 192, 200, 255, 256};

class Shape {
 public:
  Shape(FuzzProblem& problem, const Limits& limits, Random& random)
      : p_(problem), limits_(limits), random_(random) {}

  void Draw() {
    DrawSizes();
    DrawLens();
    DrawPositions();
    DrawMask();
  }

 private:
  void DrawSizes() {
    constexpr client::Layout kLayouts[] = {
        client::Layout::kBshd, client::Layout::kBhsd, client::Layout::kPacked};
    p_.attention.layout = random_.Of(kLayouts);
    p_.batch = random_.Chance(0.5) ? 1 : random_.Int(1, p_.packed() ? 6 : 3);
    p_.kv_heads = random_.Chance(0.5) ? 1 : random_.Int(1, 3);
    constexpr int64_t kGroups[] = {1, 1, 1, 2, 3, 4, 8};
    p_.q_heads = p_.kv_heads * random_.Of(kGroups);
    p_.head_dim = random_.Chance(0.9) ? random_.Of(kDims) : random_.Int(1, 256);
    p_.value_dim = random_.Chance(0.6) ? p_.head_dim : random_.Of(kDims);
    const double shape = random_.Real(0, 1);
    const auto many = [&] {
      return std::min(random_.Of(kManyLens), limits_.max_tokens);
    };
    const auto some = [&] {
      return std::min(
          random_.Chance(0.8) ? random_.Of(kLens) : random_.Int(0, 300),
          limits_.max_tokens);
    };
    p_.q_len = shape < 0.2 ? random_.Int(1, 8) : shape < 0.3 ? many() : some();
    p_.kv_len = shape < 0.2 ? many() : shape < 0.3 ? random_.Int(1, 8) : some();
    if (shape > 0.7) p_.kv_len = p_.q_len;
    // A few are empty.
    if (random_.Chance(0.02)) p_.q_len = 0;
    if (random_.Chance(0.02)) p_.kv_len = 0;
    const int64_t most = random_.Chance(0.04)  ? limits_.most_work
                         : random_.Chance(0.3) ? limits_.usual_work
                                               : limits_.usual_work / 8;
    while (Work() > most) Shrink();
  }

  int64_t Work() const {
    return p_.batch * p_.q_heads * p_.q_len * p_.kv_len *
           (p_.head_dim + p_.value_dim);
  }

  void Shrink() {
    switch (random_.Int(0, 4)) {
      case 0:
        p_.q_heads =
            p_.kv_heads * std::max<int64_t>(1, p_.q_heads / p_.kv_heads / 2);
        break;
      case 1: {
        const int64_t group = p_.q_heads / p_.kv_heads;
        p_.kv_heads = std::max<int64_t>(1, p_.kv_heads - 1);
        p_.q_heads = p_.kv_heads * group;
        break;
      }
      case 2:
        p_.batch = std::max<int64_t>(1, p_.batch - 1);
        break;
      case 3:
        (p_.head_dim > p_.value_dim ? p_.head_dim : p_.value_dim) =
            std::max<int64_t>(1, std::max(p_.head_dim, p_.value_dim) / 2);
        break;
      default:
        (p_.q_len > p_.kv_len ? p_.q_len : p_.kv_len) =
            (std::max(p_.q_len, p_.kv_len) + 1) / 2;
    }
  }

  std::vector<int64_t> Lens(int64_t most) {
    std::vector<int64_t> lens(p_.batch);
    for (int64_t& len : lens)
      len = random_.Chance(0.4) ? most : random_.Int(0, most);
    return lens;
  }

  void DrawLens() {
    client::Attention& a = p_.attention;
    const bool both = p_.packed() || random_.Chance(0.15);
    if (both || random_.Chance(0.15)) a.q_lens = Lens(p_.q_len);
    if (both || random_.Chance(0.15)) a.kv_lens = Lens(p_.kv_len);
    if (!p_.packed()) return;
    p_.q_len = *std::max_element(a.q_lens.begin(), a.q_lens.end());
    p_.kv_len = *std::max_element(a.kv_lens.begin(), a.kv_lens.end());
  }

  void DrawPositions() {
    client::Attention& a = p_.attention;
    if (random_.Chance(0.5)) return;
    const int64_t reach = p_.q_len + p_.kv_len + 2;
    const int64_t far = kMaxPosition - 16 * reach;
    const int64_t base = random_.Chance(0.7)   ? 0
                         : random_.Chance(0.5) ? far
                                               : -far;
    const auto starts = [&](std::vector<int64_t>& to) {
      const int64_t count = random_.Chance(0.5) ? 1 : p_.batch;
      for (int64_t b = 0; b < count; ++b)
        to.push_back(base + random_.Int(-reach, reach));
    };
    if (base != 0 || random_.Chance(0.6)) starts(a.q_start);
    if (base != 0 || random_.Chance(0.6)) starts(a.kv_start);
    const int64_t stripes = random_.Chance(0.6) ? 1 : random_.Int(1, 5);
    a.q_stride = random_.Chance(0.7) ? stripes : random_.Int(1, 5);
    a.kv_stride = random_.Chance(0.7) ? stripes : random_.Int(1, 5);
  }

  void DrawMask() {
    client::Mask& mask = p_.attention.mask;
    mask.causal = random_.Chance(0.4);
    const auto window = [&]() -> int64_t {
      if (random_.Chance(0.75)) return -1;
      if (random_.Chance(0.05)) return std::numeric_limits<int64_t>::max();
      return random_.Int(0, p_.kv_len + 2);
    };
    mask.window_left = window();
    mask.window_right = window();
  }

  FuzzProblem& p_;
  const Limits& limits_;
  Random& random_;
};

}  // namespace

void DrawShape(FuzzProblem& problem, const Limits& limits, Random& random) {
  Shape(problem, limits, random).Draw();
}

}  // namespace attnd::fuzz
