#ifndef ATTND_SERVER_FRONT_EXCHANGE_CALL_H_
#define ATTND_SERVER_FRONT_EXCHANGE_CALL_H_

// The life of one Exchange stream, whatever carries it. No gRPC in here:
// exchange_stream.h is gRPC's end of it.
//
//   kWaiting  for room for its first message; nothing is read
//   kReading  its first message is on its way
//   kHeld     a header that found no memory: it is tried again for a while, as
//             nothing else of it has been sent
//   kOpening  its first message is being looked at
//   kMember   a transfer's main stream, or one that joined: what comes and goes
//             is the transfer's
//   kEnding   its status is known, and on its way

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "attn/v1/attention.pb.h"
#include "base/mutex.h"
#include "proto/wire/codec.h"
#include "server/front/call.h"
#include "server/front/call_header.h"
#include "server/front/message_watch.h"
#include "server/front/upload_room.h"
#include "server/transfer/transfer.h"
#include "server/transfer/transfer_stream.h"

namespace attnd::server {

// What carries one stream of messages each way. No function blocks or calls
// back before it returns.
class MessageStream {
 public:
  virtual ~MessageStream() = default;

  // Reads a message, for ExchangeCall::OnMessage or OnReadEnd. One at a time;
  // after Finish neither need come.
  virtual void Read() = 0;
  // Writes one, for ExchangeCall::OnWritten. One at a time. `release` is called
  // once `pieces` have left, or will not. `here`: the calling thread, rather
  // than the stream's own, may copy them to the network.
  virtual void Write(absl::Span<const wire::Piece> pieces,
                     absl::AnyInvocable<void()> release, bool here) = 0;
  // Once, while nothing is written, and the last but for Cut.
  virtual void Finish(const absl::Status& status) = 0;
  // At any time: what has not left does not leave.
  virtual void Cut() = 0;
};

// Thread-safe.
class ExchangeCall final : public TransferStream,
                           public std::enable_shared_from_this<ExchangeCall> {
 public:
  // What a first message counts as of whose length nothing is said.
  static constexpr int64_t kFirstMessageBytes =
      wire::kMaxHeaderBytes + (int64_t{4} << 10);
  // How long what is being written keeps an error waiting that ends the stream.
  static constexpr absl::Duration kLastWrite = absl::Seconds(1);

  ExchangeCall(const ServiceParts& parts, std::shared_ptr<MessageStream> stream,
               CallHeader header);
  ~ExchangeCall() override;

  void Start();
  void OnMessage(std::unique_ptr<ReceivedMessage> message);
  // The client's side is over.
  void OnReadEnd();
  void OnWritten(bool ok);
  // The client or its deadline gave up, or the connection is lost.
  void OnCancel();
  // The last: all has left, or never will. `cancelled`: the client's doing.
  void OnDone(bool cancelled);

  void Read() override;
  void SendAdmitted(const std::string& token, int streams,
                    int64_t chunk_bytes) override;
  void SendMissing(const std::vector<TensorRange>& ranges) override;
  void SendChunk(TensorId tensor, int64_t offset, ConstHostSpan bytes,
                 std::shared_ptr<const void> owner, bool here) override;
  void SendResult(const TransferResult& result) override;
  void End(const absl::Status& status) override;

 private:
  enum class State : uint8_t {
    kWaiting,
    kReading,
    kHeld,
    kOpening,
    kMember,
    kEnding
  };

  void OnDecided(const absl::Status& status);
  void ReadFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnAlarm(State state);
  void LookAtMessage();
  void SetAlarm(absl::Time due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first message, which says what the stream is to be.
  void OnFirst(std::unique_ptr<ReceivedMessage> message);
  absl::Status Decode(const ReceivedMessage& message,
                      attn::v1::ExchangeRequest& request);
  // Opens the transfer that the header asks for, or holds it or ends.
  void Open();
  bool Hold();
  void OpenAgain();
  void Join(const std::string& token);
  // Becomes a member of `transfer`. False: it is ending.
  bool BecomeMember(std::shared_ptr<Transfer> transfer);
  // From now on the transfer knows of it.
  void OnMember();
  // Later messages, for the transfer.
  void OnPart(std::unique_ptr<ReceivedMessage> message);
  void OnChunk(Transfer& transfer, const attn::v1::Chunk& chunk,
               const std::vector<wire::TensorData>& data,
               std::unique_ptr<ReceivedMessage> message);
  void Write(const std::vector<wire::Piece>& pieces,
             std::shared_ptr<const void> owner, bool here);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServiceParts& parts_;
  const CallHeader header_;
  const absl::Time started_;
  const std::shared_ptr<MessageStream> stream_;

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kWaiting;
  Alarms::Id alarm_ ABSL_GUARDED_BY(mutex_);
  // Until the stream is a member.
  std::shared_ptr<UploadRoom::Upload> upload_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<MessageWatch> watch_ ABSL_GUARDED_BY(mutex_);  // of kReading
  TransferSpec spec_ ABSL_GUARDED_BY(mutex_);      // of kOpening and kHeld
  absl::Time hold_until_ ABSL_GUARDED_BY(mutex_);  // likewise
  std::shared_ptr<Transfer> transfer_ ABSL_GUARDED_BY(mutex_);  // of kMember
  bool known_ ABSL_GUARDED_BY(mutex_) = false;  // to the transfer
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);    // of kEnding
  bool admitted_ ABSL_GUARDED_BY(mutex_) = false;  // counted as such
  bool main_ ABSL_GUARDED_BY(mutex_) = false;      // opened a transfer
  int64_t received_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_EXCHANGE_CALL_H_
