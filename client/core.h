#ifndef ATTND_CLIENT_CORE_H_
#define ATTND_CLIENT_CORE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "base/mutex.h"
#include "client/call.h"
#include "client/executor.h"
#include "client/messages.h"
#include "client/prepare.h"
#include "client/region_table.h"
#include "client/retry.h"
#include "client/transport.h"

namespace attnd::client {

// The client over any transport: no gRPC in here.
class CoreClient final : public Client {
 public:
  // `executor` runs the asynchronous calls.
  CoreClient(std::unique_ptr<Transport> transport,
             std::unique_ptr<Executor> executor, const ClientOptions& options);
  ~CoreClient() override;

  absl::StatusOr<Report> Forward(const ForwardCall& call,
                                 const CallOptions& options) override;
  absl::StatusOr<Report> Backward(const BackwardCall& call,
                                  const CallOptions& options) override;
  std::function<void()> ForwardAsync(const ForwardCall& call,
                                     const CallOptions& options,
                                     Callback done) override;
  std::function<void()> BackwardAsync(const BackwardCall& call,
                                      const CallOptions& options,
                                      Callback done) override;
  void AddRegion(std::shared_ptr<Region> region) override;
  void RemoveRegion(const std::shared_ptr<Region>& region) override;
  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options) override;
  absl::Status CheckHealth(const std::string& service,
                           const CallOptions& options) override;

 private:
  // Fills in a call of tensors; as PrepareForward.
  using Prepare =
      absl::FunctionRef<absl::Status(const Route&, Report&, CallSpec&)>;

  // Runs a call on the calling thread.
  absl::Status Run(CallSpec spec, CallStats& stats);
  // The same of a call without tensors.
  absl::Status RunSmall(
      const char* method, Pieces pieces, const CallOptions& options,
      absl::AnyInvocable<absl::Status(Fragments fragments)> decode);
  // The synchronous and asynchronous halves of Forward and Backward.
  absl::StatusOr<Report> RunTensors(Prepare prepare,
                                    const CallOptions& options);
  std::function<void()> StartTensors(Prepare prepare,
                                     const CallOptions& options, Callback done);
  // What the client knows of its server.
  Route NewRoute();
  void Learn(const Lesson& lesson);
  CallContext Context(Executor& executor, bool waits);
  void EndCall();

  const ClientOptions options_;
  RetryBudget budget_;

  Mutex mutex_;
  Condition idle_;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;  // not yet done
  // Until then the server counts as one without Exchange, or regions, on the
  // executor's clock: another may have taken its place.
  absl::Time lacks_exchange_until_ ABSL_GUARDED_BY(mutex_) =
      absl::InfinitePast();
  absl::Time lacks_regions_until_ ABSL_GUARDED_BY(mutex_) =
      absl::InfinitePast();
  std::string lacks_regions_ ABSL_GUARDED_BY(mutex_);  // what it said
  RegionTable regions_;

  // The executor's threads end before the transport that they use.
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<Executor> executor_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CORE_H_
