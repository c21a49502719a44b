#ifndef ATTND_SERVER_WORK_GROUP_KEY_H_
#define ATTND_SERVER_WORK_GROUP_KEY_H_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/request.h"

namespace attnd::server {

// How a group runs whose members were asked for like `spec`.
inline GroupOptions OptionsOf(const RequestSpec& spec) {
  return {.algorithm = spec.algorithm,
          .deterministic = spec.deterministic,
          .plan = spec.plan};
}

// What requests must share to run as one group.
struct GroupKey {
  Op op = Op::kForward;
  DType dtype = DType::kF32;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  GroupOptions options;

  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_GROUP_KEY_H_
