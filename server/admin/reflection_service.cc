#include "server/admin/reflection_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace attnd::server {
namespace {

SmallCallParts WithIdleTime(SmallCallParts parts) {
  parts.stall_time = std::min(parts.stall_time, kReflectionIdleTime);
  return parts;
}

std::vector<std::string> WithReflection(std::vector<std::string> services) {
  services.emplace_back("grpc.reflection.v1.ServerReflection");
  services.emplace_back("grpc.reflection.v1alpha.ServerReflection");
  std::sort(services.begin(), services.end());
  return services;
}

// Asks for the next request once its client has taken the last answer.
class ReflectionCall final : public SmallCall {
 public:
  ReflectionCall(const Schema& schema, const SmallCallParts& parts,
                 StreamLimits& limits)
      : SmallCall(parts, limits), schema_(schema) {}

 private:
  // The messages of both versions are the same.
  void OnRequest(const std::string& bytes) override {
    grpc::reflection::v1::ServerReflectionRequest request;
    if (!request.ParseFromString(bytes)) {
      return End(absl::InvalidArgumentError("the request cannot be parsed"));
    }
    Send(schema_.Answer(request).SerializeAsString());
  }
  void OnRequestEnd() override { End(absl::OkStatus()); }
  void OnTaken() override { Read(); }

  const Schema& schema_;
};

}  // namespace

ReflectionService::ReflectionService(std::vector<std::string> services,
                                     SmallCallParts parts)
    : parts_(WithIdleTime(parts)),
      schema_(WithReflection(std::move(services))),
      streams_("reflection streams", kReflectionStreams,
               kReflectionStreamsPerClient) {
  for (const char* path :
       {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    Add(path, [this] {
      return std::make_shared<ReflectionCall>(schema_, parts_, streams_);
    });
  }
}

}  // namespace attnd::server
