#ifndef ATTND_CLIENT_TRANSFER_H_
#define ATTND_CLIENT_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/chunk_plan.h"
#include "client/exchange_messages.h"
#include "client/executor.h"
#include "client/messages.h"
#include "client/result_sink.h"
#include "client/transport.h"

namespace attnd::client {

// A call that travels as an Exchange, by as many transfers as it takes.
struct TransferSpec {
  ExchangeParts parts;
  // Reads the response, an ExchangeResponse; its status becomes the
  // transfer's. Runs on the transport's thread.
  absl::AnyInvocable<absl::Status(Fragments)> decode;
};

struct TransferResult {
  absl::Status status;
  bool admitted = false;  // else no tensor was sent
  int streams = 1;        // that carried it
};

// One attempt over streams: the order of messages that attention.proto gives
// for ExchangeRequest. The first stream is the main one; others join it as the
// server allows, and may break. Chunks of the inputs go to whichever stream is
// free, one at a time on each; chunks of the results are copied as they come,
// on the transport's threads, outside of the lock. Thread-safe; lives until it
// is done.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  using Done = absl::AnyInvocable<void(TransferResult)>;

  // `spec`, and what it borrows, must live until `done` has been called: once,
  // on the executor, when every stream has ended. Then nothing refers to the
  // inputs any more, and nothing will be written to the outputs.
  static std::shared_ptr<Transfer> Start(TransferSpec& spec,
                                         Transport& transport,
                                         Executor& executor,
                                         const CallHeaders& headers, Done done);

  Transfer(TransferSpec& spec, Transport& transport, Executor& executor,
           const CallHeaders& headers, Done done);
  ~Transfer();

  // Cancels all streams. It then ends with CANCELLED, unless it is about to end
  // otherwise.
  void Cancel();

 private:
  class Stream;
  struct Step;

  // Opens another stream; the caller starts it. Null: there is no connection.
  absl::StatusOr<Stream*> AddStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What a stream does next, if it is free for it; then it no longer is.
  Step NextStep(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Step NextMainStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Step NextJoinedStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the next steps of `stream`, and of the main one, which may have
  // waited for it. Not under the lock: writing takes as long as it takes.
  void Advance(Stream& stream);
  static void Take(Stream& stream, const Step& step);

  void OnWritten(Stream& stream, bool ok);
  void OnMessage(Stream& stream, Fragments fragments);
  void OnEnd(Stream& stream, absl::Status status);
  // The same, on the executor.
  void EndStream(Stream& stream, const absl::Status& status);

  absl::Status Admit(const Grant& grant);
  absl::Status ResendInputs(const MissingInputs& missing);
  absl::Status TakeChunk(const ResultChunk& chunk);
  absl::Status TakeResponse(Fragments fragments);

  // A chunk whose write failed goes back to the plan.
  void ReturnChunk(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Streams that joined, those not counted that broke.
  int JoinedStreams() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a stream beside the main one has not ended.
  bool ResultsMayCome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Complete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return responded_ && results_.complete();
  }
  // Ends the transfer with `status`, unless it is ending already.
  void Fail(const absl::Status& status);
  // All streams, or those that have not joined.
  void CancelStreams(bool only_not_joined);
  TransferResult Outcome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(TransferResult result);

  TransferSpec& spec_;
  Transport& transport_;
  Executor& executor_;
  const CallHeaders headers_;  // each stream says them
  const uint32_t turn_;
  Done done_;
  std::shared_ptr<Transfer> keep_alive_;

  Mutex mutex_;
  // The main one first. They stay where they are, and never more than asked
  // for.
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  Stream* main_ = nullptr;                     // set before anything happens
  int live_ ABSL_GUARDED_BY(mutex_) = 0;       // streams that have not ended
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more is sent or taken
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // found here
  absl::Status main_status_ ABSL_GUARDED_BY(mutex_);

  bool admitted_ ABSL_GUARDED_BY(mutex_) = false;
  ChunkPlan plan_ ABSL_GUARDED_BY(mutex_);
  int chunks_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool inputs_sent_ ABSL_GUARDED_BY(mutex_) = false;
  ResultSink results_ ABSL_GUARDED_BY(mutex_);
  bool response_came_ ABSL_GUARDED_BY(mutex_) = false;
  bool responded_ ABSL_GUARDED_BY(mutex_) = false;  // and it was a good one
  bool asked_again_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_TRANSFER_H_
