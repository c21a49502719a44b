#ifndef ATTND_CLIENT_CALL_H_
#define ATTND_CLIENT_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "attnd/client.h"
#include "attnd/region.h"
#include "base/mutex.h"
#include "client/executor.h"
#include "client/retry.h"
#include "client/transfer.h"
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

// How a call went.
struct CallStats {
  int attempts = 0;
  TransportKind transport = TransportKind::kUnary;  // of the last attempt
  int streams = 1;                                  // that carried it
};

struct CallSpec {
  // Of a unary call.
  std::string method;
  std::vector<wire::Piece> pieces;
  // Not null: the server knows of the first attempt already.
  std::unique_ptr<OpenedCall> opened;
  // Reads the response; its status becomes the call's.
  absl::AnyInvocable<absl::Status(absl::Span<const absl::string_view>)> decode;

  // Not null: the call travels as an Exchange, by this.
  std::unique_ptr<TransferSpec> exchange;
  // Whether any tensor goes by reference.
  bool by_reference = false;
  // Those in which the call's tensors lie.
  std::vector<std::shared_ptr<Region>> regions;

  // When the server has refused, before it had a tensor, something that it does
  // not know, by UNIMPLEMENTED or NOT_FOUND: makes of this another call that
  // does without. What it returns, if not OK, becomes the call's status. Null:
  // the refusal does. Runs on the executor.
  absl::AnyInvocable<absl::Status(const absl::Status& refusal, CallSpec& spec)>
      fall_back;
  // Runs on the executor once such another call has been answered: so that is
  // all that the server did not know.
  absl::AnyInvocable<void()> learn;

  CallHeaders headers;
  // Runs on the executor, once, when nothing refers to the caller's memory any
  // more.
  absl::AnyInvocable<void(absl::Status, const CallStats&)> done;
};

// One call: attempts of one request, unary ones or transfers, until one
// succeeds or the retry rules say stop. Thread-safe; lives until it is done.
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
  // These return what cancels the attempt, if anything can.
  std::function<void()> BeginUnary();
  std::function<void()> BeginTransfer();
  void FinishAttempt(Transport::Result result);
  void FinishTransfer(const TransferResult& result);
  // Whether to go on without what the server has refused, which then had no
  // tensor yet.
  bool MayFallBack(const absl::Status& status) const;
  void FallBack(const absl::Status& refusal);
  void Learn();
  void FailAttempt(const absl::Status& status);
  void EndBackoff();
  void Finish(const absl::Status& status);

  const CallContext context_;
  CallSpec spec_;  // used by the step that runs; there is one at a time

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kAttempt;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;  // attempts, and the next:
  // Those that found out that the server lacks something.
  int refused_ ABSL_GUARDED_BY(mutex_) = 0;
  int streams_ ABSL_GUARDED_BY(mutex_) = 1;
  std::function<void()> cancel_attempt_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CALL_H_
