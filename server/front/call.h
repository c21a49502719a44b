#ifndef ATTND_SERVER_FRONT_CALL_H_
#define ATTND_SERVER_FRONT_CALL_H_

// The life of one Forward or Backward call, whatever carries it. No gRPC in
// here: unary_stream.h is gRPC's end of a call.
//
//   kWaiting  for room for its message (upload_room.h); nothing is read
//   kReading  its message is on its way
//   kWorking  decoded, submitted, in the scheduler's hands
//   kHeld     submitted in vain, as there was no memory to compute it in: it is
//             tried again, as its sender would otherwise have to send it again
//   kEnding   its status is known, and on its way with the answer, if any
//
// Any state but kWorking has an alarm, so that a peer that stops sending or
// reading holds what it holds for so long and no longer.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "proto/wire/codec.h"
#include "server/front/admitted_calls.h"
#include "server/front/call_header.h"
#include "server/front/message_watch.h"
#include "server/front/upload_room.h"
#include "server/identity/callers.h"
#include "server/scheduling/scheduler.h"
#include "server/telemetry/call_log.h"
#include "server/transfer/alarms.h"
#include "server/transfer/transfer_table.h"
#include "server/work/region.h"
#include "server/work/work.h"

namespace attnd::server {

// What calls use; all of it outlives them.
struct ServiceParts {
  Scheduler* scheduler = nullptr;
  CallLog* calls = nullptr;
  AdmittedCalls* admitted_calls = nullptr;
  UploadRoom* uploads = nullptr;
  TransferTable* transfers = nullptr;
  Alarms* alarms = nullptr;
  const RegionLookup* regions = nullptr;  // null: there are none
  // See excess_memory.h.
  std::function<int64_t()> excess_memory;
  int64_t max_message_bytes = 0;  // of a response
  absl::Duration stall_time;      // see ServerOptions
  absl::Duration header_time;     // also there
  Callers* callers = nullptr;
};

// What carries one call. No function blocks or calls back before it returns.
class CallStream {
 public:
  virtual ~CallStream() = default;

  // Once at most: reads the message, for Call::OnMessage or OnNoMessage.
  virtual void Read() = 0;
  // Gives the message's memory back. Its fragments are no longer valid.
  virtual void DropMessage() = 0;
  // Once at most: lets the client know that there will be an answer. Does
  // nothing once there is one; may run beside what answers, on another thread.
  virtual void Announce() = 0;
  // Once, one of the two, and the last but for Cut and an Announce that came
  // too late. `release` is called once `pieces` have left, or will not.
  virtual void Answer(absl::Span<const wire::Piece> pieces,
                      absl::AnyInvocable<void()> release) = 0;
  virtual void Refuse(const absl::Status& status) = 0;
  // At any time, also when all is over: what has not left does not leave.
  virtual void Cut() = 0;
};

// Thread-safe.
class Call : public std::enable_shared_from_this<Call> {
 public:
  // The longest that a message waits, for room or once it is here for memory,
  // and how often that is asked for.
  static constexpr absl::Duration kMostWait = absl::Seconds(10);
  static constexpr absl::Duration kAskAgain = absl::Milliseconds(5);

  Call(const ServiceParts& parts, std::shared_ptr<CallStream> stream, Op op,
       CallHeader header);
  ~Call();

  void Start();
  // After Read, one of the two. The fragments are valid until DropMessage.
  void OnMessage(absl::Span<const absl::string_view> fragments);
  void OnNoMessage();
  // The client or its deadline gave up.
  void OnCancel();
  // The last: all has left, or never will. `cancelled`: the client's doing.
  void OnDone(bool cancelled);

 private:
  enum class State : uint8_t { kWaiting, kReading, kWorking, kHeld, kEnding };

  // What it has been waiting for is decided.
  void OnDecided(const absl::Status& status);
  void Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAlarm(State state);
  void LookAtMessage();
  // OnAlarm(state_) at `due`, unless another alarm is set before.
  void SetAlarm(absl::Time due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Decode(absl::Span<const absl::string_view> fragments,
                      const WorkPtr& work);
  // In kWorking: submits the work, holds it or ends the call.
  void Submit(const WorkPtr& work);
  void SubmitAgain();
  // False: it may not be held any longer.
  bool Hold(const Work& work);
  void ReleaseInputs();
  void Complete(absl::StatusOr<WorkResult> result);
  // False: it is ending already. Otherwise `status` is what it ends with, and
  // an answer of `bytes` may now be sent.
  bool BeginEnd(const absl::Status& status, int64_t bytes);
  void SetEnding(const absl::Status& status, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(const absl::Status& status);

  const ServiceParts& parts_;
  const Op op_;
  const CallHeader header_;
  const absl::Time started_;
  const std::shared_ptr<CallStream> stream_;

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kWaiting;
  Alarms::Id alarm_ ABSL_GUARDED_BY(mutex_);
  // Until the inputs have been copied or are not needed.
  std::shared_ptr<UploadRoom::Upload> upload_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<MessageWatch> watch_ ABSL_GUARDED_BY(mutex_);  // of kReading
  WorkPtr work_ ABSL_GUARDED_BY(mutex_);
  absl::Time hold_until_ ABSL_GUARDED_BY(mutex_);  // of kWorking
  bool admitted_ ABSL_GUARDED_BY(mutex_) = false;  // counted as such

  // Written by whoever leads the call from one state to the next, and read in
  // OnDone.
  absl::Status status_ = absl::UnknownError("");
  int64_t received_bytes_ = 0, sent_bytes_ = 0;
  std::shared_ptr<const Request> request_;  // null: it was not decoded
  std::optional<RunRecord> run_;            // empty: it did not run
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_CALL_H_
