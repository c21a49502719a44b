#ifndef ATTND_CLIENT_CALL_H_
#define ATTND_CLIENT_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "client/executor.h"
#include "client/retry.h"
#include "client/transport.h"
#include "proto/wire/codec.h"

namespace attnd::client {

// What a call needs of its client; all outlive it.
struct CallContext {
  Transport& transport;
  Executor& executor;
  RetryBudget& budget;
  RetryPolicy retry;
  // Whoever runs the executor has nothing to do but this call, which nobody can
  // cancel: attempts may block.
  bool waits = false;
};

struct CallSpec {
  std::string method;
  std::vector<wire::Piece> pieces;
  absl::Time deadline = absl::InfiniteFuture();
  // Reads the response; its status becomes the call's.
  absl::AnyInvocable<absl::Status(absl::Span<const absl::string_view>)> decode;
  // Runs on the executor, once, when nothing refers to `pieces` any more.
  absl::AnyInvocable<void(absl::Status, int attempts)> done;
};

// One call: attempts of one request, with the same pieces, until one succeeds
// or the retry rules say stop. Thread-safe; lives until it is done.
class Call : public std::enable_shared_from_this<Call> {
 public:
  static std::shared_ptr<Call> Start(CallSpec spec, const CallContext& context);

  Call(CallSpec spec, const CallContext& context)
      : context_(context), spec_(std::move(spec)) {}

  // The call then ends with CANCELLED, unless it is about to end otherwise.
  void Cancel();

 private:
  enum class State { kAttempt, kBackoff, kDone };

  void BeginAttempt();
  void FinishAttempt(Transport::Result result);
  void FailAttempt(const absl::Status& status);
  void EndBackoff();
  void Finish(const absl::Status& status);

  const CallContext context_;
  CallSpec spec_;  // used by the step that runs; there is one at a time

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kAttempt;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int attempts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> cancel_attempt_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CALL_H_
