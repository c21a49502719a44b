#ifndef ATTND_SERVER_FRONT_HEALTH_SERVICE_H_
#define ATTND_SERVER_FRONT_HEALTH_SERVICE_H_

// grpc.health.v1.Health. gRPC's own has no limits, and no descriptor that
// reflection could show.

#include "server/front/health.h"
#include "server/front/raw_service.h"
#include "server/front/small_call.h"
#include "server/front/stream_limits.h"

namespace attnd::server {

class HealthService final : public RawService {
 public:
  // `most` and `most_per_client`: watches, and checks, at once. Beyond them
  // they are RESOURCE_EXHAUSTED. An honest client has a watch a connection, so
  // they had better be as many as connections. `health` and what `parts` refers
  // to outlive it.
  HealthService(Health& health, SmallCallParts parts, int most,
                int most_per_client);

 private:
  const SmallCallParts parts_;
  StreamLimits checks_, watches_;
  const UnaryAnswer check_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_HEALTH_SERVICE_H_
