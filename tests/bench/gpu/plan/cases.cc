#include "tests/bench/gpu/plan/cases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace attnd::bench {
namespace {

constexpr int64_t k8k = 8192, k16k = 16384, k32k = 32768, k64k = 65536,
                  k128k = 131072;
constexpr double kHeadsBar = 96, kWindowBar = 93;
// Two devices cannot do better than 2/3 where the first one's rows see nothing
// of the other's columns: within four points of that.
constexpr double kRingBar = 200.0 / 3 - 4;

Wanted Gather(const char* section, std::optional<double> forward_bar,
              std::optional<double> backward_bar) {
  return {section, PlanKind::kGather, forward_bar, backward_bar};
}

Wanted Heads() { return {"heads", PlanKind::kHeads, kHeadsBar, kHeadsBar}; }

// The kinds whose columns go round, beside others. A bar may be none.
std::vector<Wanted> WithRings(std::vector<Wanted> wanted, double forward_bar,
                              double backward_bar,
                              std::optional<double> ring_bar) {
  wanted.push_back({"ring", PlanKind::kRing, ring_bar, ring_bar});
  wanted.push_back({"striped", PlanKind::kStriped, forward_bar, backward_bar});
  wanted.push_back({"zigzag", PlanKind::kZigzag, forward_bar, backward_bar});
  return wanted;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  const auto add = [&](const Shape& shape, std::vector<Wanted> wanted) {
    cases.push_back({shape, std::move(wanted)});
  };
  add({.batch = 2, .len = k8k}, {Gather("causal", 75, 72)});
  add({.len = k16k},
      WithRings({Gather("causal", 83, 80), Heads()}, 80, 75, std::nullopt));
  add({.len = k32k}, {Heads()});
  add({.batch = 2, .len = k32k}, {Gather("causal", 92, 90)});
  add({.len = k64k},
      WithRings({Gather("causal", 95, 94), Heads()}, 93, 90, kRingBar));
  add({.len = k128k},
      WithRings({Gather("causal", 97, 96), Heads()}, 96, 94, kRingBar));
  add({.len = k16k, .causal = false}, {Gather("full", 90, std::nullopt)});
  add({.len = k64k, .causal = false}, {Gather("full", 96, std::nullopt)});
  add({.len = k128k, .causal = false}, {Gather("full", 97, std::nullopt)});
  add({.len = k128k, .left = 4096}, {Gather("window", kWindowBar, kWindowBar)});
  add({.len = k16k, .q_heads = 32, .kv_heads = 4}, {Gather("gqa", 90, 90)});
  return cases;
}

std::string Length(int64_t len) {
  return len % 1024 == 0 ? absl::StrCat(len / 1024, "k") : absl::StrCat(len);
}

}  // namespace

std::string Shape::name() const {
  std::string tokens = Length(len);
  if (kv_len.has_value()) absl::StrAppend(&tokens, "x", Length(*kv_len));
  if (!lens.empty()) {
    tokens = absl::StrJoin(lens, "+", [](std::string* out, int64_t one) {
      out->append(Length(one));
    });
  }
  std::string name = absl::StrCat("b", batch, " ", tokens, " h", q_heads, "/",
                                  kv_heads, causal ? " causal" : " full");
  if (left >= 0) absl::StrAppend(&name, " w", left);
  return name;
}

std::optional<int64_t> Shape::NeededBytes(Op op, int devices) const {
  if (left < 0) return std::nullopt;
  const int64_t of_token = op == Op::kForward
                               ? 2 * kv_heads * dim * 2
                               : q_heads * (2 * dim * 2 + 2 * 4 + dim * 4);
  return batch * (devices - 1) * std::min(left, len / devices) * of_token;
}

std::vector<Case> Cases(const std::string& only, int64_t shrink) {
  std::vector<Case> cases;
  for (Case& one : AllCases()) {
    one.shape.len = std::max<int64_t>(one.shape.len / shrink, 1);
    if (one.shape.left >= 0) one.shape.left /= shrink;
    std::erase_if(one.wanted, [&](const Wanted& wanted) {
      return !absl::StrContains(wanted.section, only);
    });
    if (!one.wanted.empty()) cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace attnd::bench
