#include "tests/bench/gpu/plan/check_cases.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/plan/pairwise.h"

namespace attnd::bench {
namespace {

using plan::InputsLie;

constexpr int kSelfCases = 66, kDecodeCases = 24;
constexpr double kMostSeconds = 0.06;
constexpr int64_t kMostBytes = 3'300'000'000;
constexpr int64_t kWindow = 4096;
// About what an H100 does, and what lies between it and the host.
constexpr double kForwardFlops = 600e12, kBackwardFlops = 450e12;
constexpr double kReadPerSecond = 2.5e12, kCopiedPerSecond = 50e9;

constexpr std::array kInputs = {InputsLie::kOnHost, InputsLie::kWherePlanned,
                                InputsLie::kByRanges};
constexpr std::array kOps = {Op::kForward, Op::kBackward};
constexpr std::array<int64_t, 5> kLens = {1024, 4096, 16384, 65536, 131072};

enum class Masked { kCausal, kFull, kWindow };
constexpr std::array kMasks = {Masked::kCausal, Masked::kFull, Masked::kWindow};

struct Heads {
  int64_t q, kv;
};
constexpr std::array<Heads, 3> kSelfHeads = {{{16, 1}, {12, 3}, {16, 16}}};
constexpr std::array<Heads, 3> kDecodeHeads = {{{16, 1}, {12, 3}, {64, 8}}};

// Some sequences, alike or each half as long as the one before it, or of
// lengths that nothing divides.
struct Sequences {
  enum { kAlike, kHalves, kOdd } lens;
  int64_t batch;
};
constexpr std::array<Sequences, 7> kSequences = {{{Sequences::kAlike, 1},
                                                  {Sequences::kAlike, 2},
                                                  {Sequences::kAlike, 4},
                                                  {Sequences::kAlike, 8},
                                                  {Sequences::kHalves, 4},
                                                  {Sequences::kHalves, 8},
                                                  {Sequences::kOdd, 3}}};
constexpr std::array<int64_t, 3> kDecodeBatches = {1, 2, 8};
constexpr std::array<int64_t, 2> kDecodeRows = {1, 16};
constexpr std::array<int64_t, 2> kDecodeColumns = {65536, 131072};

template <class Values>
int Size(const Values& values) {
  return static_cast<int>(values.size());
}

std::vector<int64_t> LensOf(const Sequences& sequences, int64_t len) {
  if (sequences.lens == Sequences::kOdd) {
    return {len - 1, len * 3 / 7, len / 5 + 3};
  }
  std::vector<int64_t> lens;
  if (sequences.lens == Sequences::kAlike) return lens;
  for (int64_t i = 0; i < sequences.batch; ++i) lens.push_back(len >> i);
  return lens;
}

// That rows see, in all sequences.
double PairsOf(const Shape& shape) {
  const std::vector<int64_t> lens =
      shape.lens.empty() ? std::vector<int64_t>(shape.batch, shape.len)
                         : shape.lens;
  double pairs = 0;
  for (const int64_t len : lens) {
    const auto rows = static_cast<double>(len);
    const auto columns = static_cast<double>(shape.kv_len.value_or(len));
    const double seen =
        shape.causal && !shape.kv_len.has_value() ? columns / 2 : columns;
    pairs += rows * (shape.left < 0
                         ? seen
                         : std::min(seen, static_cast<double>(shape.left)));
  }
  return pairs;
}

double AloneSeconds(const CheckCase& one) {
  const Shape& shape = one.shape;
  const bool forward = one.op == Op::kForward;
  const double flops = (forward ? 4 : 10) * PairsOf(shape) *
                       static_cast<double>(shape.dim * shape.q_heads);
  // Each input and output once.
  const double bytes =
      2 * static_cast<double>((forward ? 2 : 4) * shape.elements() +
                              (forward ? 2 : 4) * shape.kv_elements());
  const double seconds =
      std::max(flops / (forward ? kForwardFlops : kBackwardFlops),
               bytes / kReadPerSecond);
  return one.inputs == InputsLie::kOnHost
             ? std::max(seconds, bytes / kCopiedPerSecond)
             : seconds;
}

bool Fits(CheckCase& one) {
  one.alone_seconds = AloneSeconds(one);
  return one.alone_seconds <= kMostSeconds && one.sizes().bytes() <= kMostBytes;
}

// By its choice of sequences, heads, length, mask, inputs and operation; none
// that takes too much.
std::optional<CheckCase> SelfCase(const Choice& choice) {
  const Sequences& sequences = kSequences[choice[0]];
  const Heads& heads = kSelfHeads[choice[1]];
  const Masked mask = kMasks[choice[3]];
  CheckCase one;
  one.shape.batch = sequences.batch;
  one.shape.len = kLens[choice[2]];
  one.shape.q_heads = heads.q;
  one.shape.kv_heads = heads.kv;
  one.shape.causal = mask != Masked::kFull;
  one.shape.left = mask == Masked::kWindow ? kWindow : -1;
  one.shape.lens = LensOf(sequences, one.shape.len);
  one.inputs = kInputs[choice[4]];
  one.op = kOps[choice[5]];
  // Whatever is longer is causal.
  if (one.shape.len <= one.shape.left) return std::nullopt;
  while (!Fits(one)) {
    const int64_t group = one.shape.q_heads / heads.kv / 2;
    if (group == 0) return std::nullopt;
    one.shape.q_heads = heads.kv * group;
  }
  return one;
}

// By its choice of sequences, heads, rows, columns, inputs and operation.
std::optional<CheckCase> DecodeCase(const Choice& choice) {
  CheckCase one;
  one.shape.batch = kDecodeBatches[choice[0]];
  one.shape.q_heads = kDecodeHeads[choice[1]].q;
  one.shape.kv_heads = kDecodeHeads[choice[1]].kv;
  one.shape.len = kDecodeRows[choice[2]];
  one.shape.kv_len = kDecodeColumns[choice[3]];
  one.inputs = kInputs[choice[4]];
  one.op = kOps[choice[5]];
  if (!Fits(one)) return std::nullopt;
  return one;
}

// Rows of decode stay as they are. Of a sequence of one token dQ and dK are
// nothing but rounding, which differs: two at least.
void Shrink(int64_t shrink, Shape& shape) {
  const auto divide = [shrink](int64_t& len) {
    len = std::max<int64_t>(len / shrink, 2);
  };
  if (shape.kv_len.has_value()) {
    divide(*shape.kv_len);
    shape.len = std::min(shape.len, *shape.kv_len);
  } else {
    divide(shape.len);
  }
  for (int64_t& len : shape.lens) divide(len);
  if (shape.left >= 0) shape.left /= shrink;
}

}  // namespace

std::string CheckCase::name() const {
  return absl::StrCat(shape.name(), " ", OpName(op), " ", InputsName(inputs));
}

TensorSizes CheckCase::sizes() const {
  const int64_t q = shape.elements(), kv = shape.kv_elements();
  if (op == Op::kForward) return {q, kv, 0, 0, shape.rows()};
  return {q, kv, q, kv, shape.rows()};
}

const char* InputsName(InputsLie inputs) {
  switch (inputs) {
    case InputsLie::kOnHost:
      return "host";
    case InputsLie::kWherePlanned:
      return "placed";
    default:
      return "ranges";
  }
}

std::vector<CheckCase> CheckCases(const std::string& only, int64_t shrink) {
  std::vector<CheckCase> all;
  const auto add = [&](const std::vector<int>& sizes, int count, auto make) {
    const auto allows = [&](const Choice& choice) {
      return make(choice).has_value();
    };
    for (const Choice& choice : Pairwise(sizes, count, allows)) {
      all.push_back(*make(choice));
    }
  };
  add({Size(kSequences), Size(kSelfHeads), Size(kLens), Size(kMasks),
       Size(kInputs), Size(kOps)},
      kSelfCases, SelfCase);
  add({Size(kDecodeBatches), Size(kDecodeHeads), Size(kDecodeRows),
       Size(kDecodeColumns), Size(kInputs), Size(kOps)},
      kDecodeCases, DecodeCase);
  int number = 0;
  for (CheckCase& one : all) one.number = ++number;
  std::erase_if(all, [&](const CheckCase& one) {
    return !absl::StrContains(one.name(), only);
  });
  for (CheckCase& one : all) Shrink(shrink, one.shape);
  return all;
}

}  // namespace attnd::bench
