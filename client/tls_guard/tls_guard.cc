#include "attnd/tls_guard.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/guard/guard.h"
#include "base/mutex.h"
#include "base/tls/tls_stream.h"
#include "client/socket_mutator.h"
#include "client/tls_guard/client_context.h"
#include "client/tls_guard/client_guard.h"
#include "client/tls_guard/target_host.h"
#include "client/tls_sockets.h"

namespace attnd::client {
namespace {

class GuardedSockets final
    : public TlsSockets,
      public std::enable_shared_from_this<GuardedSockets> {
 public:
  GuardedSockets(SslContextPtr context, std::string name)
      : context_(std::move(context)), name_(std::move(name)) {}

  bool Protect(int fd) override {
    auto tls = TlsStream::Start(fd, NewConnection(context_.get(), name_));
    if (tls == nullptr) return false;
    return PutGuard(fd, std::make_unique<ClientGuard>(
                            std::move(tls), name_,
                            [self = shared_from_this()](std::string failure) {
                              MutexLock lock(self->mutex_);
                              self->failure_ = std::move(failure);
                            }));
  }

  std::string failure() const override {
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  const SslContextPtr context_;
  const std::string name_;
  mutable Mutex mutex_;
  std::string failure_ ABSL_GUARDED_BY(mutex_);
};

// What gRPC itself reads in the environment and acts on: a proxy, which has to
// be spoken to in clear first, and roots other than the system's.
bool EnvironmentNamesAny(std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0';
  });
}

std::shared_ptr<TlsSockets> Make(const std::string& target,
                                 const Credentials::Tls& tls,
                                 const std::string& server_name) {
  const std::string host = TargetHost(target);
  if (host.empty() ||
      EnvironmentNamesAny({"grpc_proxy", "https_proxy", "http_proxy"}) ||
      (tls.authorities.empty() &&
       EnvironmentNamesAny({"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
                            "GRPC_NOT_USE_SYSTEM_SSL_ROOTS"}))) {
    return nullptr;
  }
  SslContextPtr context = MakeClientContext(tls);
  // gRPC says what is wrong with them.
  if (context == nullptr) return nullptr;
  return std::make_shared<GuardedSockets>(
      std::move(context), server_name.empty() ? host : server_name);
}

}  // namespace

bool UseTlsGuard(bool use) {
  const bool can = use && CanProtectSockets() && GuardsAreAsked();
  SetTlsSocketsMaker(can ? &Make : nullptr);
  return can || !use;
}

}  // namespace attnd::client
