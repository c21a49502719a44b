#ifndef ATTND_SERVER_ADMIN_REFLECTION_SERVICE_H_
#define ATTND_SERVER_ADMIN_REFLECTION_SERVICE_H_

// grpc.reflection.v1 and v1alpha. gRPC's own takes a thread for each stream,
// and knows only the older one.

#include <string>
#include <vector>

#include "server/admin/schema.h"
#include "server/front/raw_service.h"
#include "server/front/small_call.h"
#include "server/front/stream_limits.h"

namespace attnd::server {

// Whoever looks at a server by hand has a stream or two, for a moment.
inline constexpr int kReflectionStreams = 64;
inline constexpr int kReflectionStreamsPerClient = 8;
// A stream ends on which nothing is asked for so long, or on which the last
// answer has not been taken by then.
inline constexpr absl::Duration kReflectionIdleTime = absl::Seconds(30);

class ReflectionService final : public RawService {
 public:
  // Shows `services` and itself. Beyond the limits above a stream is
  // RESOURCE_EXHAUSTED. What `parts` refers to outlives it.
  ReflectionService(std::vector<std::string> services, SmallCallParts parts);

 private:
  const SmallCallParts parts_;
  const Schema schema_;
  StreamLimits streams_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_REFLECTION_SERVICE_H_
