#ifndef ATTND_CLIENT_CORE_H_
#define ATTND_CLIENT_CORE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "attnd/client.h"
#include "base/mutex.h"
#include "client/call.h"
#include "client/executor.h"
#include "client/messages.h"
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
  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options) override;
  absl::Status CheckHealth(const std::string& service,
                           const CallOptions& options) override;

 private:
  // A method of the service that takes tensors, and what reads its response.
  struct TensorMethod;
  static const TensorMethod kForward, kBackward;
  using Decode = absl::AnyInvocable<absl::Status(Fragments)>;

  // Runs a call on the calling thread.
  absl::Status Run(const char* method, Pieces pieces, absl::Duration timeout,
                   Decode decode, int* attempts);
  // The synchronous and asynchronous halves of Forward and Backward.
  absl::StatusOr<Report> RunTensors(const TensorMethod& method,
                                    absl::StatusOr<Pieces> pieces,
                                    std::vector<Output> outputs,
                                    const CallOptions& options);
  std::function<void()> StartTensors(const TensorMethod& method,
                                     absl::StatusOr<Pieces> pieces,
                                     std::vector<Output> outputs,
                                     const CallOptions& options, Callback done);
  CallContext Context(Executor& executor, bool waits);
  void EndCall();

  const ClientOptions options_;
  RetryBudget budget_;

  Mutex mutex_;
  Condition idle_;
  int64_t calls_ ABSL_GUARDED_BY(mutex_) = 0;  // not yet done

  // The executor's threads end before the transport that they use.
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<Executor> executor_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CORE_H_
