#ifndef ATTND_SERVER_ADMIN_CHANNELZ_SERVICE_H_
#define ATTND_SERVER_ADMIN_CHANNELZ_SERVICE_H_

// grpc.channelz.v1.Channelz: what gRPC knows of this process' channels, servers
// and connections. gRPC's own plugin would put it on every server of the
// process, the public one included.

#include "absl/status/status.h"
#include "server/front/raw_service.h"
#include "server/front/small_call.h"
#include "server/front/stream_limits.h"

namespace attnd::server {

class ChannelzService final : public RawService {
 public:
  // What `parts` refers to outlives it.
  explicit ChannelzService(SmallCallParts parts);

 private:
  template <class Request, class Response>
  void AddUnary(const char* path,
                absl::Status (*answer)(const Request&, Response&));

  const SmallCallParts parts_;
  StreamLimits calls_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_CHANNELZ_SERVICE_H_
