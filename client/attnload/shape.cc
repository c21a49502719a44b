#include "client/attnload/shape.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/decimal.h"
#include "proto/wire/status.h"

namespace attnd::attnload {
namespace {

using client::Algorithm;
using client::DType;
using client::Plan;

// Keeps every sum of tensors' bytes far from overflow.
constexpr double kMaxElements = 1e12;

// "7" gives 7 to both, "7/3" one to each.
bool ParsePair(absl::string_view text, int64_t& first, int64_t& second) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  if (parts.size() > 2 || !absl::SimpleAtoi(parts[0], &first)) return false;
  second = first;
  return parts.size() == 1 || absl::SimpleAtoi(parts[1], &second);
}

// Words, by what they set: two of a kind contradict each other.
bool ParseWord(absl::string_view word, Shape& shape, char& kind) {
  const auto set = [&](char k, auto& field, auto value) {
    kind = k;
    field = value;
    return true;
  };
  if (word == "forward") return set('>', shape.backward, false);
  if (word == "backward") return set('>', shape.backward, true);
  if (word == "f32") return set('t', shape.dtype, DType::kF32);
  if (word == "f16") return set('t', shape.dtype, DType::kF16);
  if (word == "bf16") return set('t', shape.dtype, DType::kBF16);
  if (word == "causal") return set('c', shape.mask.causal, true);
  if (word == "det") return set('e', shape.deterministic, true);
  if (word == "naive") return set('a', shape.algorithm, Algorithm::kNaive);
  if (word == "online") {
    return set('a', shape.algorithm, Algorithm::kOnlineSoftmax);
  }
  if (word == "fa1") {
    return set('a', shape.algorithm, Algorithm::kFlashAttention1);
  }
  if (word == "fa2") {
    return set('a', shape.algorithm, Algorithm::kFlashAttention2);
  }
  for (Plan plan : {Plan::kOneDevice, Plan::kHeads, Plan::kGather, Plan::kRing,
                    Plan::kStriped, Plan::kZigzag, Plan::kKv}) {
    if (word == Name(plan)) return set('p', shape.plan, plan);
  }
  return false;
}

// A letter and numbers.
bool ParseNumbers(absl::string_view part, Shape& shape, char& kind) {
  if (part.empty()) return false;
  kind = part[0];
  const absl::string_view rest = part.substr(1);
  switch (kind) {
    case 'b':
      return absl::SimpleAtoi(rest, &shape.batch);
    case 's':
      return ParsePair(rest, shape.q_len, shape.kv_len);
    case 'h':
      return ParsePair(rest, shape.q_heads, shape.kv_heads);
    case 'd':
      return ParsePair(rest, shape.head_dim, shape.value_dim);
    case 'w':
      return ParsePair(rest, shape.mask.window_left, shape.mask.window_right);
  }
  return false;
}

absl::Status Validate(const Shape& s) {
  const int64_t dims[] = {s.batch,    s.q_len,    s.kv_len,   s.q_heads,
                          s.kv_heads, s.head_dim, s.value_dim};
  for (int64_t dim : dims) {
    if (dim < 1) return absl::InvalidArgumentError("every size is at least 1");
  }
  // In double: only its size matters, and it cannot overflow.
  const double elements =
      double(s.batch) * double(std::max(s.q_len, s.kv_len)) *
      std::max(s.q_heads, s.kv_heads) * std::max(s.head_dim, s.value_dim);
  if (elements > kMaxElements) return absl::InvalidArgumentError("too large");
  if (s.q_heads % s.kv_heads != 0) {
    return absl::InvalidArgumentError(
        "query heads are a multiple of key and value heads");
  }
  if (s.mask.window_left < -1 || s.mask.window_right < -1) {
    return absl::InvalidArgumentError("a window is -1 or more");
  }
  return absl::OkStatus();
}

}  // namespace

int64_t Shape::input_bytes() const {
  const int64_t element = client::SizeOf(dtype);
  int64_t bytes = (q_elements() + k_elements() + v_elements()) * element;
  if (backward) bytes += 2 * o_elements() * element + rows() * 4;
  return bytes;
}

int64_t Shape::output_bytes() const {
  const int64_t element = client::SizeOf(dtype);
  return backward ? (q_elements() + k_elements() + v_elements()) * element
                  : o_elements() * element + rows() * 4;
}

const char* Name(Plan plan) {
  switch (plan) {
    case Plan::kOneDevice:
      return "one_device";
    case Plan::kHeads:
      return "heads";
    case Plan::kGather:
      return "gather";
    case Plan::kRing:
      return "ring";
    case Plan::kStriped:
      return "striped";
    case Plan::kZigzag:
      return "zigzag";
    case Plan::kKv:
      return "kv";
    case Plan::kAuto:
      break;
  }
  return "unknown";
}

absl::StatusOr<Shape> ParseShape(absl::string_view text) {
  const auto refuse = [text](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape \"", wire::Echo(text), "\": ", why));
  };
  Shape shape;
  const std::vector<absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  shape.name = std::string(halves[0]);
  if (halves.size() == 2 &&
      (!ParseDecimal(halves[1], &shape.weight) ||
       !std::isfinite(shape.weight) || shape.weight <= 0)) {
    return refuse("the weight after @ is not > 0");
  }
  absl::flat_hash_set<char> kinds;
  for (absl::string_view part : absl::StrSplit(halves[0], ':')) {
    char kind;
    if (!ParseWord(part, shape, kind) && !ParseNumbers(part, shape, kind)) {
      return refuse(absl::StrCat("\"", wire::Echo(part), "\" is not known"));
    }
    if (!kinds.insert(kind).second) {
      return refuse(
          absl::StrCat("\"", wire::Echo(part), "\" says a thing twice"));
    }
  }
  if (absl::Status s = Validate(shape); !s.ok()) return refuse(s.message());
  return shape;
}

absl::StatusOr<std::vector<Shape>> ParseMix(absl::string_view text) {
  std::vector<Shape> shapes;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<Shape> shape = ParseShape(line);
    if (!shape.ok()) return shape.status();
    shapes.push_back(*std::move(shape));
  }
  if (shapes.empty()) return absl::InvalidArgumentError("the mix is empty");
  return shapes;
}

absl::StatusOr<std::vector<Shape>> ReadMix(std::istream& from) {
  constexpr size_t kMaxBytes = 1 << 20;
  std::string text(kMaxBytes + 1, '\0');
  from.read(text.data(), std::streamsize(text.size()));
  text.resize(from.gcount());
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError("longer than 1 MiB");
  }
  return ParseMix(text);
}

}  // namespace attnd::attnload
