#include "kernels/plan_kind.h"

namespace attnd {

absl::string_view PlanName(PlanKind kind) {
  switch (kind) {
    case PlanKind::kAuto:
      return "auto";
    case PlanKind::kOneDevice:
      return "one_device";
    case PlanKind::kHeads:
      return "heads";
    case PlanKind::kGather:
      return "gather";
    case PlanKind::kRing:
      return "ring";
    case PlanKind::kStriped:
      return "striped";
    case PlanKind::kZigzag:
      return "zigzag";
    case PlanKind::kKv:
      break;
  }
  return "kv";
}

}  // namespace attnd
