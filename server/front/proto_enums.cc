#include "server/front/proto_enums.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/field_error.h"

namespace attnd::server {

namespace pb = ::attn::v1;

absl::StatusOr<DType> FromProto(pb::DataType dtype, TensorId tensor) {
  const auto error = [tensor](absl::string_view description) {
    return FieldError(absl::StrCat(TensorName(tensor), ".dtype"), description);
  };
  switch (dtype) {
    case pb::DATA_TYPE_F32:
      return DType::kF32;
    case pb::DATA_TYPE_F16:
      return DType::kF16;
    case pb::DATA_TYPE_BF16:
      return DType::kBF16;
    case pb::DATA_TYPE_UNSPECIFIED:
      return error("must be given: F32, F16 or BF16");
    default:
      return error(absl::StrCat("unknown value ", static_cast<int>(dtype)));
  }
}

pb::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return pb::DATA_TYPE_F32;
    case DType::kF16:
      return pb::DATA_TYPE_F16;
    case DType::kBF16:
      return pb::DATA_TYPE_BF16;
  }
  return pb::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<Layout> FromProto(pb::Layout layout) {
  switch (layout) {
    case pb::LAYOUT_UNSPECIFIED:
    case pb::LAYOUT_BSHD:
      return Layout::kBshd;
    case pb::LAYOUT_BHSD:
      return Layout::kBhsd;
    case pb::LAYOUT_PACKED:
      return Layout::kPacked;
    default:
      return FieldError(
          "attention.layout",
          absl::StrCat("unknown value ", static_cast<int>(layout)));
  }
}

absl::StatusOr<Algorithm> FromProto(pb::Algorithm algorithm) {
  switch (algorithm) {
    case pb::ALGORITHM_UNSPECIFIED:
      return Algorithm::kAuto;
    case pb::ALGORITHM_NAIVE:
      return Algorithm::kNaive;
    case pb::ALGORITHM_ONLINE_SOFTMAX:
      return Algorithm::kOnlineSoftmax;
    case pb::ALGORITHM_FLASH_ATTENTION_1:
      return Algorithm::kFlashAttention1;
    case pb::ALGORITHM_FLASH_ATTENTION_2:
      return Algorithm::kFlashAttention2;
    default:
      return FieldError(
          "options.algorithm",
          absl::StrCat("unknown value ", static_cast<int>(algorithm)));
  }
}

pb::Algorithm ToProto(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return pb::ALGORITHM_UNSPECIFIED;
    case Algorithm::kNaive:
      return pb::ALGORITHM_NAIVE;
    case Algorithm::kOnlineSoftmax:
      return pb::ALGORITHM_ONLINE_SOFTMAX;
    case Algorithm::kFlashAttention1:
      return pb::ALGORITHM_FLASH_ATTENTION_1;
    case Algorithm::kFlashAttention2:
      return pb::ALGORITHM_FLASH_ATTENTION_2;
  }
  return pb::ALGORITHM_UNSPECIFIED;
}

absl::StatusOr<PlanKind> FromProto(pb::Plan plan) {
  switch (plan) {
    case pb::PLAN_UNSPECIFIED:
    case pb::PLAN_AUTO:
      return PlanKind::kAuto;
    case pb::PLAN_ONE_DEVICE:
      return PlanKind::kOneDevice;
    case pb::PLAN_HEADS:
      return PlanKind::kHeads;
    case pb::PLAN_GATHER:
      return PlanKind::kGather;
    case pb::PLAN_RING:
      return PlanKind::kRing;
    case pb::PLAN_STRIPED:
      return PlanKind::kStriped;
    case pb::PLAN_ZIGZAG:
      return PlanKind::kZigzag;
    case pb::PLAN_KV:
      return PlanKind::kKv;
    default:
      return FieldError("options.plan",
                        absl::StrCat("unknown value ", static_cast<int>(plan)));
  }
}

pb::Plan ToProto(PlanKind plan) {
  switch (plan) {
    case PlanKind::kAuto:
      return pb::PLAN_AUTO;
    case PlanKind::kOneDevice:
      return pb::PLAN_ONE_DEVICE;
    case PlanKind::kHeads:
      return pb::PLAN_HEADS;
    case PlanKind::kGather:
      return pb::PLAN_GATHER;
    case PlanKind::kRing:
      return pb::PLAN_RING;
    case PlanKind::kStriped:
      return pb::PLAN_STRIPED;
    case PlanKind::kZigzag:
      return pb::PLAN_ZIGZAG;
    case PlanKind::kKv:
      return pb::PLAN_KV;
  }
  return pb::PLAN_UNSPECIFIED;
}

absl::StatusOr<Priority> FromProto(pb::Priority priority) {
  switch (priority) {
    case pb::PRIORITY_LOW:
      return Priority::kLow;
    case pb::PRIORITY_UNSPECIFIED:
    case pb::PRIORITY_NORMAL:
      return Priority::kNormal;
    case pb::PRIORITY_HIGH:
      return Priority::kHigh;
    default:
      return FieldError(
          "options.priority",
          absl::StrCat("unknown value ", static_cast<int>(priority)));
  }
}

}  // namespace attnd::server
