#ifndef ATTND_SERVER_FRONT_UPLOAD_ROOM_H_
#define ATTND_SERVER_FRONT_UPLOAD_ROOM_H_

// Memory for request messages, from before their first byte is read until their
// bytes have been copied. gRPC takes a whole message once it is told to read
// it, and its flow control keeps a client waiting until then, at the price of
// one window (64 KiB); so a call tells gRPC to read when there is room here.
//
// How long a message is gRPC does not say before it has arrived. The client
// may (proto/wire/metadata.h). Without such a hint a
// message counts as the largest possible of its kind until it is there.
//
//   small   by its hint, or without one on a connection that has not sent a
//           large one: in memory of their own, so that they never wait behind
//           large ones. One that has not arrived within kSmallTime is none
//           (with a hint only while another small one waits, and where memory
//           is plenty not before it has had as long again: it may be the
//           server that is slow),
//           and kProbeTime is what the first of a connection has.
//   large   all others
//
// Both are shared between clients as the byte account is (client_shares.h), and
// clients that wait take turns. Where too many wait, the last one of the client
// that has most goes. A connection that has not sent anything yet has proven
// nothing: only kProbes of these have a small message under way at once, and
// none of a client that has sent more than it said within kDistrustTime.

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/scheduling/admission.h"
#include "server/telemetry/server_stats.h"
#include "server/work/client_shares.h"
#include "server/work/recent.h"

namespace attnd::server {

struct UploadLimits {
  int64_t large_bytes = 0;
  int64_t small_bytes = 0;
  // What a message without a hint counts as; at most large_bytes.
  int64_t max_message_bytes = 0;
  // Messages that wait, small ones and large ones: each may hold a window.
  int64_t max_waiting = 0;
};

// Who sends a message.
struct Sender {
  std::string client;      // whose share it counts against
  std::string connection;  // what may be told from what it sent before
};

// Thread-safe.
class UploadRoom {
 public:
  static constexpr int64_t kSmallBytes = int64_t{64} << 10;
  // Whatever its length, a message costs gRPC a buffer to read it into.
  static constexpr int64_t kLeastBytes = int64_t{4} << 10;
  static constexpr absl::Duration kSmallTime = absl::Milliseconds(250);
  static constexpr absl::Duration kProbeTime = absl::Milliseconds(50);
  // For which a client is not believed whose hint was too low.
  static constexpr absl::Duration kDistrustTime = absl::Minutes(1);
  static constexpr int kProbes = 16;
  static constexpr int kProbesPerClient = 1;

  // One message's room, which it gives back when it goes. Its room outlives it.
  class Upload;
  // OK: there is room now. Else what the call ends with: UNAVAILABLE (Close),
  // or RESOURCE_EXHAUSTED with RetryInfo: too many wait.
  using Decided = absl::AnyInvocable<void(const absl::Status&)>;

  explicit UploadRoom(const UploadLimits& limits);
  // No upload is left.
  ~UploadRoom();

  // Asks for room for a message of `hint` bytes, which may have `most` at most,
  // or, without that, as many as any. Errors, for the call:
  //   RESOURCE_EXHAUSTED  it is longer than any message may be; or, with
  //                       RetryInfo, too many wait
  //   UNAVAILABLE         closed
  // Otherwise see Upload::granted; if it has to wait, `decided` is called once,
  // on any thread, unless the upload goes before.
  absl::StatusOr<std::unique_ptr<Upload>> Enter(
      Sender sender, std::optional<int64_t> hint, Decided decided,
      std::optional<int64_t> most = {});
  // Whoever waits, now or later, is refused: the server is shutting down.
  void Close();

  UploadStats stats() const;

 private:
  struct Pool {
    explicit Pool(int64_t limit)
        : limit_bytes(limit), shares(static_cast<double>(limit)) {}
    int64_t limit_bytes;
    int64_t held_bytes = 0;
    ClientShares shares;
    // Who waits: each client's in order, and the clients in turn.
    int64_t waiting_count = 0;
    absl::flat_hash_map<std::string, std::list<Upload*>> waiting;
    std::deque<std::string> turns;
  };
  enum class Seen : uint8_t { kSmall, kLarge };  // of a connection's last one

  void Classify(Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Trusts(const std::string& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What its connection sent first was small: what waits of it has proven that.
  void TrustWaiting(const Sender& sender) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayProbe(const std::string& client) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether its client's shares allow it, whatever memory there is.
  bool Allowed(const Upload& upload) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasMemory(const Upload& upload) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether somebody waits for nothing but memory, whose turn comes first.
  bool IsMemoryWanted(const Pool& pool) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Books `bytes` in `pool` for it, in place of what it has.
  void Move(Upload& upload, Pool& pool, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndProbe(Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wait(Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether one more may wait, for which another may have to go: it is told
  // what `displaced` returns, and `refusal`, without the lock.
  bool MakeWayFor(const Upload& upload, Decided& displaced,
                  absl::Status& refusal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the large ones' memory has room for it with `bytes`, in place of
  // what it has, and its client's share does.
  bool IsRoomAmongLarge(const Upload& upload, int64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopWaiting(Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives room to those who wait, and returns whom to tell.
  std::vector<Decided> Grant() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GrantIn(Pool& pool, std::vector<Decided>& granted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Refusal(absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UploadLimits limits_;
  mutable Mutex mutex_;
  Pool small_ ABSL_GUARDED_BY(mutex_), large_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, int> probes_by_client_
      ABSL_GUARDED_BY(mutex_);
  int probes_ ABSL_GUARDED_BY(mutex_) = 0;
  Recent<Seen> connections_ ABSL_GUARDED_BY(mutex_);
  // Clients whose hints were too low, or seemed so, and until when nothing that
  // they say or have not shown yet counts.
  Recent<absl::Time> distrusted_ ABSL_GUARDED_BY(mutex_);
  // How fast room is given back while others wait for it.
  RateEstimate rate_ ABSL_GUARDED_BY(mutex_);
  absl::Time contended_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

// Thread-safe, but for its end.
class UploadRoom::Upload {
 public:
  // Gives back what it holds.
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // The message may be read.
  bool granted() const;
  // How long it may take before Late is to be called; none: it is large.
  std::optional<absl::Duration> late_after() const;
  // How long the message is, if its client says so and is believed.
  std::optional<int64_t> hint() const;

  // The message is here, with `bytes`: what it does not need is given back.
  // INVALID_ARGUMENT: that is more than its hint. Its client is then not
  // believed for a while.
  absl::Status Arrived(int64_t bytes);
  // Books `bytes` for it among the large ones, in place of what it has. False:
  // there is no room for them now, or its client has its share.
  bool Resize(int64_t bytes);
  // late_after() its grant, or the last call, it is not here, and the heap
  // could have `spare_bytes` more. OK: it counts as large from now on, or may
  // be late as it has a hint; see late_after(). RESOURCE_EXHAUSTED, with
  // RetryInfo: there is no room.
  absl::Status Late(int64_t spare_bytes);
  // It has waited as long as it may. OK: it waits no longer, and has been
  // granted meanwhile. Otherwise RESOURCE_EXHAUSTED with RetryInfo, and
  // `decided` will not be called.
  absl::Status GiveUp();
  // Its message is to go for want of memory: RESOURCE_EXHAUSTED, with RetryInfo
  // if others are under way, as it may not be the one that takes it.
  absl::Status Excess();

 private:
  friend class UploadRoom;
  enum class State : uint8_t { kWaiting, kGranted, kRefused };

  Upload(UploadRoom& room, Sender sender, std::optional<int64_t> hint,
         int64_t most, Decided decided)
      : room_(room),
        sender_(std::move(sender)),
        most_(most),
        hint_(hint),
        decided_(std::move(decided)) {}

  // Late, to be taken for a large one. RESOURCE_EXHAUSTED: there is no room.
  absl::Status CountAsLarge(std::vector<Decided>& granted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(room_.mutex_);

  // All of it the room's, under its mutex.
  UploadRoom& room_;
  const Sender sender_;
  const int64_t most_;  // that the message may have
  std::optional<int64_t> hint_;
  Decided decided_;
  State state_ = State::kWaiting;
  Pool* pool_ = nullptr;
  int64_t bytes_ = 0;                   // wanted or, once granted, held
  bool unproven_ = false;               // small, and the connection's first
  bool probing_ = false;                // counts among the probes
  bool was_late_ = false;               // and had more time
  std::list<Upload*>::iterator place_;  // while it waits
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_UPLOAD_ROOM_H_
