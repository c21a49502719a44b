#include <memory>
#include <string>

#include "attnd/client.h"
#include "client/core.h"
#include "client/credentials.h"
#include "client/executor.h"
#include "client/grpc_transport.h"

namespace attnd::client {

absl::StatusOr<std::unique_ptr<Client>> Client::Create(
    const std::string& target, const ClientOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) return status;
  auto credentials = Credentials::Load(target, options);
  if (!credentials.ok()) return credentials.status();
  return std::make_unique<CoreClient>(
      std::make_unique<GrpcTransport>(target, options, *std::move(credentials)),
      std::make_unique<ThreadExecutor>(options.executor_threads), options);
}

}  // namespace attnd::client
