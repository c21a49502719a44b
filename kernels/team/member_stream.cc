#include "kernels/team/member_stream.h"

namespace attnd {

absl::StatusOr<std::unique_ptr<MemberStream>> Backend::NewMemberStream() {
  return absl::UnimplementedError("this device cannot be one of a team");
}

}  // namespace attnd
