#include "server/front/health_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "grpc/health/v1/health.pb.h"

namespace attnd::server {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

HealthCheckResponse::ServingStatus StatusOf(const Health& health) {
  return health.serving() ? HealthCheckResponse::SERVING
                          : HealthCheckResponse::NOT_SERVING;
}

absl::Status Check(const Health& health, const HealthCheckRequest& request,
                   HealthCheckResponse& response) {
  if (!Health::Knows(request.service())) {
    return absl::NotFoundError("unknown service");
  }
  response.set_status(StatusOf(health));
  return absl::OkStatus();
}

// Sends what is so now, and then, whenever its client has taken that, what has
// become of it; a client that is slow misses what was in between.
class WatchCall final : public SmallCall, public HealthWatcher {
 public:
  WatchCall(Health& health, const SmallCallParts& parts, StreamLimits& limits)
      : SmallCall(parts, limits), health_(health) {}

  void OnHealth() override {
    if (health_.ended()) {
      return End(absl::UnavailableError("the server is shutting down"));
    }
    MutexLock lock(mutex_);
    const auto status =
        known_ ? StatusOf(health_) : HealthCheckResponse::SERVICE_UNKNOWN;
    if (sending_ || sent_ == status) return;
    sending_ = true;
    sent_ = status;
    HealthCheckResponse response;
    response.set_status(status);
    Send(response.SerializeAsString());
  }

 private:
  void OnRequest(const std::string& bytes) override {
    HealthCheckRequest request;
    if (!request.ParseFromString(bytes)) {
      return End(absl::InvalidArgumentError("the request cannot be parsed"));
    }
    {
      MutexLock lock(mutex_);
      known_ = Health::Knows(request.service());
    }
    health_.Watch(std::static_pointer_cast<WatchCall>(self()));
    OnHealth();
  }
  void OnRequestEnd() override {
    End(absl::InvalidArgumentError("there is no request"));
  }
  void OnTaken() override {
    {
      MutexLock lock(mutex_);
      sending_ = false;
    }
    OnHealth();
  }
  void OnOver() override { health_.Unwatch(*this); }

  Health& health_;
  Mutex mutex_;
  bool known_ ABSL_GUARDED_BY(mutex_) = false;
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<HealthCheckResponse::ServingStatus> sent_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace

HealthService::HealthService(Health& health, SmallCallParts parts, int most,
                             int most_per_client)
    : parts_(parts),
      checks_("health checks at once", most, most_per_client),
      watches_("health watches", most, most_per_client),
      check_(AnswerBy<HealthCheckRequest, HealthCheckResponse>(
          [&health](const auto&, const auto& request, auto& response) {
            return Check(health, request, response);
          })) {
  Add("/grpc.health.v1.Health/Check", [this] {
    return std::make_shared<SmallUnaryCall>(parts_, checks_, check_);
  });
  Add("/grpc.health.v1.Health/Watch", [this, &health] {
    return std::make_shared<WatchCall>(health, parts_, watches_);
  });
}

}  // namespace attnd::server
