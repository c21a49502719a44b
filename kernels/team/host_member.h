#ifndef ATTND_KERNELS_TEAM_HOST_MEMBER_H_
#define ATTND_KERNELS_TEAM_HOST_MEMBER_H_

#include <memory>

#include "kernels/backend.h"
#include "kernels/team/member_stream.h"

namespace attnd {

// A member whose device shares the host's memory, around one of its streams.
// Everything happens inside the calls, so that points need not be awaited; what
// is not the kernels' the calling thread does.
std::unique_ptr<MemberStream> NewHostMember(std::unique_ptr<Stream> stream);

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_HOST_MEMBER_H_
