#include "server/telemetry/call_record.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnd::server {
namespace {

// "h16", or "h16/4" where the two differ.
void AppendPair(absl::string_view letter, int64_t first, int64_t second,
                std::string& to) {
  absl::StrAppend(&to, ":", letter, first);
  if (first != second) absl::StrAppend(&to, "/", second);
}

absl::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      break;
  }
  return "bf16";
}

// Empty: the server chooses.
absl::string_view NameOf(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "";
    case Algorithm::kNaive:
      return ":naive";
    case Algorithm::kOnlineSoftmax:
      return ":online";
    case Algorithm::kFlashAttention1:
      return ":fa1";
    case Algorithm::kFlashAttention2:
      break;
  }
  return ":fa2";
}

}  // namespace

const char* NameOf(Method method) {
  constexpr const char* kNames[] = {"Forward", "Backward", "GetServerInfo",
                                    "Exchange"};
  static_assert(std::size(kNames) == kMethods);
  return kNames[static_cast<size_t>(method)];
}

std::string ShapeOf(const Request& request) {
  const RequestSpec& spec = request.spec();
  const Sizes& sizes = request.sizes();
  std::string shape = absl::StrCat(
      spec.op == Op::kForward ? "forward" : "backward", ":",
      NameOf(request.input(TensorId::kQ).spec.dtype), ":b", sizes.batch);
  AppendPair("s", sizes.q_len, sizes.kv_len, shape);
  AppendPair("h", sizes.q_heads, sizes.kv_heads, shape);
  AppendPair("d", sizes.head_dim, sizes.value_dim, shape);
  if (spec.mask.causal) shape += ":causal";
  if (spec.mask.left >= 0 || spec.mask.right >= 0) {
    absl::StrAppend(&shape, ":w", spec.mask.left, "/", spec.mask.right);
  }
  absl::StrAppend(&shape, NameOf(spec.algorithm));
  if (spec.deterministic) shape += ":det";
  if (spec.plan != PlanKind::kAuto) {
    absl::StrAppend(&shape, ":", PlanName(spec.plan));
  }
  if (spec.layout == Layout::kPacked) {
    shape += ":packed";
  } else if (!spec.q_lens.empty() || !spec.kv_lens.empty()) {
    shape += ":lens";
  }
  if (request.input(TensorId::kBias).present) shape += ":bias";
  return shape;
}

}  // namespace attnd::server
