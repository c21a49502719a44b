#ifndef ATTND_SERVER_TRANSFER_TRANSFER_H_
#define ATTND_SERVER_TRANSFER_TRANSFER_H_

// One Exchange from its admission to its end, over one main stream and those
// that join it. No gRPC in here.
//
//   kReceiving  chunks arrive, in any order over any stream, and are copied to
//               where they are computed
//   kWorking    all are there: the scheduler has the work
//   kSending    results leave in chunks, over whichever stream takes them
//   kSent       the last are leaving, and the response; what did not arrive is
//               asked for and sent again, until the client ends its side
//   kEnded
//
// Whoever waits for a client holds nothing that others wait for: memory was
// reserved for all of it before its first byte, and a lane gets it complete.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/backend.h"
#include "server/scheduling/scheduler.h"
#include "server/transfer/alarms.h"
#include "server/transfer/incoming.h"
#include "server/transfer/outgoing.h"
#include "server/transfer/stream_calls.h"
#include "server/transfer/transfer_stream.h"
#include "server/work/run_record.h"
#include "server/work/work.h"

namespace attnd::server {

// What transfers use; all of it outlives them.
struct TransferParts {
  Scheduler* scheduler = nullptr;
  Alarms* alarms = nullptr;
  absl::Duration stall_time;  // see ServerOptions
};

// What was granted to a transfer.
struct TransferGrant {
  std::string token;
  std::string client;
  int streams = 1;
  int64_t chunk_bytes = 0;
  Streamed streamed;
  WorkPtr work;  // with its request, and inputs that are not streamed
  std::optional<Reservation> reservation;
  PlacedInputs inputs;
  // Room for messages that are received; goes once no more are expected.
  std::shared_ptr<void> room;
  // Called once, when it ends: nobody may find it any more.
  absl::AnyInvocable<void()> ended;
};

// Thread-safe. A stream's events come one after another.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  // What gRPC may hold of a stream that is read, beside whole messages.
  static constexpr int64_t kWindowBytes = int64_t{1} << 20;
  // A transfer that has been waiting for a message for so long is suspected of
  // what fills the memory, if something does.
  static constexpr absl::Duration kSuspectAfter = absl::Milliseconds(250);

  Transfer(const TransferParts& parts, TransferGrant grant);
  ~Transfer();

  // Says that it is admitted, and begins to read.
  void Begin(std::shared_ptr<TransferStream> main);
  // Adds a stream, which is read from now on. NOT_FOUND: it is another client's
  // or over; RESOURCE_EXHAUSTED: it has as many as it was granted.
  absl::Status Join(std::shared_ptr<TransferStream> stream,
                    const std::string& client);

  Op op() const { return request_->spec().op; }
  const std::shared_ptr<const Request>& request() const { return request_; }
  // What its streams bring.
  void OnChunk(TransferStream& stream, ArrivedChunk chunk);
  void OnInputsSent(TransferStream& stream, int streams);
  void OnMissing(TransferStream& stream,
                 const std::vector<TensorRange>& ranges);
  // The client's side of the stream is over.
  void OnReadEnd(TransferStream& stream);
  // What was sent has left, or, not `ok`, never will.
  void OnSent(TransferStream& stream, bool ok);
  // The stream's connection is lost, or its call cancelled or past its
  // deadline, as `status` says: if it is the main one, all ends with that.
  void OnBroken(TransferStream& stream, const absl::Status& status);
  // Something is wrong with what the stream brought: all ends with `status`.
  void OnGarbled(const absl::Status& status) { End(status); }

  // Ends it, if it is not over.
  void End(const absl::Status& status);
  // The same, if it is suspected of what fills the memory.
  void EndIfSuspect(absl::Time now);

  // Empty: it has not run.
  std::optional<RunRecord> run() const;

 private:
  enum class State : uint8_t { kReceiving, kWorking, kSending, kSent, kEnded };
  // One stream, and what is under way on it.
  struct Member {
    std::shared_ptr<TransferStream> stream;
    bool reading = false;
    absl::Time read_since;
    bool read_ended = false;
    bool sending = false;
    std::optional<Outgoing::Chunk> chunk;  // what it sends, if that is one
  };

  Member* Find(TransferStream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Member& main() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return *members_[0]; }
  bool IsMain(const Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return &member == members_[0].get();
  }
  void Read(Member& member, StreamCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reads on where something may come that is of use. Before results are sent
  // that is chunks and inputs_sent, and nothing once these are here: what
  // nobody reads stays with its sender.
  void ReadOn(Member& member, StreamCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnCopied(TransferStream& stream, const absl::Status& status);
  // Whether all inputs are there, and whoever asks is to submit the work.
  bool TakeReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Submit();
  // Asks for what did not come, once nobody else can bring it. Not OK: nobody
  // ever will.
  absl::Status AskForMissing(StreamCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnResult(absl::StatusOr<WorkResult> result);
  // Sends what there is to send on streams that are free.
  void Pump(StreamCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendNext(Member& member, StreamCalls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the member was sending has not left.
  void PutBack(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsSending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends joined streams that send nothing, once there is nothing more to send.
  void EndJoined(StreamCalls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAlarm();
  absl::Time Due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TransferParts parts_;
  const std::string token_, client_;
  const int streams_;
  const int64_t chunk_bytes_;
  const Streamed streamed_;
  std::shared_ptr<const Request> request_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kReceiving;
  // The first is the main one; the others go when they have ended.
  std::vector<std::unique_ptr<Member>> members_ ABSL_GUARDED_BY(mutex_);
  WorkPtr work_ ABSL_GUARDED_BY(mutex_);
  std::optional<Reservation> reservation_ ABSL_GUARDED_BY(mutex_);
  PlacedInputs inputs_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<void> room_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void()> ended_ ABSL_GUARDED_BY(mutex_);

  Incoming incoming_ ABSL_GUARDED_BY(mutex_);
  int copying_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<int> inputs_sent_ ABSL_GUARDED_BY(mutex_);
  int joined_ended_ ABSL_GUARDED_BY(mutex_) = 0;  // that bring nothing more
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;    // for what is missing

  Outgoing outgoing_ ABSL_GUARDED_BY(mutex_);
  TransferResult result_ ABSL_GUARDED_BY(mutex_);
  // What goes over the main stream before any chunk.
  std::deque<absl::AnyInvocable<void(TransferStream&)>> first_
      ABSL_GUARDED_BY(mutex_);

  Alarms::Id alarm_ ABSL_GUARDED_BY(mutex_);
  absl::Time progress_ ABSL_GUARDED_BY(mutex_);  // the last
  absl::Time late_ ABSL_GUARDED_BY(mutex_);      // whatever progress there is
  absl::Time admitted_ ABSL_GUARDED_BY(mutex_);
  absl::Duration receive_ ABSL_GUARDED_BY(mutex_);  // see Phases
  std::optional<RunRecord> run_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_TRANSFER_H_
