#ifndef ATTND_SERVER_FRONT_SMALL_CALL_H_
#define ATTND_SERVER_FRONT_SMALL_CALL_H_

// gRPC's end of a call whose messages are small and carry no tensors: health,
// GetServerInfo, reflection. They take no room of UploadRoom, so that none
// waits for large messages; what peers could hold by them is bounded here: how
// many there are, how large a request is, and how long it may be on its way.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/front/grpc_call.h"
#include "server/front/small_reads.h"
#include "server/front/stream_limits.h"
#include "server/telemetry/call_ids.h"
#include "server/transfer/alarms.h"

namespace attnd::server {

// What small calls use; all of it outlives them.
struct SmallCallParts {
  Alarms* alarms = nullptr;
  SmallReads* reads = nullptr;
  // What a message has to arrive, or to be taken by the client.
  absl::Duration stall_time;
};

// Who makes a small call.
struct SmallCaller {
  std::string client;  // its address, or by what the log knows it
  CallIds ids;
};

// Whoever derives from it is told what happens on the queue's thread, one thing
// after another, and may ask for one thing at a time: the next request, or that
// an answer is sent.
class SmallCall : public GrpcCall, public SmallReader {
 public:
  // A longer request is refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMostBytes = size_t{64} << 10;

 protected:
  SmallCall(const SmallCallParts& parts, StreamLimits& limits)
      : parts_(parts), limits_(limits) {}

  void Read();
  // For OnTaken. From any thread.
  void Send(const std::string& message);
  // Sends it and ends the call.
  void SendLast(const std::string& message);
  // Ends it once what is being sent has been taken. Only the first end counts.
  // From any thread.
  void End(const absl::Status& status);

  // Since OnCall.
  SmallCaller& caller() { return caller_; }

  virtual void OnRequest(const std::string& bytes) = 0;
  // The client sends no further request.
  virtual void OnRequestEnd() = 0;
  virtual void OnTaken() {}
  // The last.
  virtual void OnOver() {}

 private:
  enum class Phase : uint8_t { kIdle, kReading, kSending, kEnding, kOver };

  void OnCall() final;
  void OnMessage(grpc::ByteBuffer& message) final;
  void OnReadEnd() final;
  void OnWritten(bool ok) final;
  void OnCancel() final { End(absl::CancelledError()); }
  void OnDone(bool cancelled) final;
  void OnExcess() final;
  // What was waited for is here. False: the call has ended meanwhile.
  bool Leave(Phase phase);
  void EndNow(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enter(Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: the peer has not taken what it was sent.
  bool EndIfLate();

  const SmallCallParts& parts_;
  StreamLimits& limits_;
  std::weak_ptr<SmallCall> weak_;  // since OnCall
  SmallCaller caller_;             // likewise
  std::optional<StreamLimits::Place> place_;
  Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kIdle;
  // What it ends with when it is no longer sending.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  absl::Time until_ ABSL_GUARDED_BY(mutex_);  // of the alarm
  Alarms::Id alarm_ ABSL_GUARDED_BY(mutex_);
};

// A unary call: from the bytes of its request, its answer's or an error. On the
// queue's thread, so it must not block.
using UnaryAnswer = std::function<absl::StatusOr<std::string>(
    const SmallCaller& caller, const std::string& request)>;

// Whether `caller` may have an answer, which may get another name here; the
// error it is refused with.
using UnaryAdmission = std::function<absl::Status(
    const grpc::ServerContextBase& context, SmallCaller& caller)>;

class SmallUnaryCall final : public SmallCall {
 public:
  // `answer` and `admit` outlive the call. Everybody may have an answer where
  // `admit` is empty.
  SmallUnaryCall(const SmallCallParts& parts, StreamLimits& limits,
                 const UnaryAnswer& answer,
                 const UnaryAdmission& admit = kEverybody)
      : SmallCall(parts, limits), answer_(answer), admit_(admit) {}

 private:
  void OnRequest(const std::string& bytes) override;
  void OnRequestEnd() override;

  static inline const UnaryAdmission kEverybody;

  const UnaryAnswer& answer_;
  const UnaryAdmission& admit_;
};

// The answer by typed messages. INVALID_ARGUMENT: the bytes are no Request.
template <class Request, class Response>
UnaryAnswer AnswerBy(
    std::function<absl::Status(const SmallCaller& caller,
                               const Request& request, Response& response)>
        answer) {
  return [answer = std::move(answer)](
             const SmallCaller& caller,
             const std::string& bytes) -> absl::StatusOr<std::string> {
    Request request;
    Response response;
    if (!request.ParseFromString(bytes)) {
      return absl::InvalidArgumentError("the request cannot be parsed");
    }
    if (absl::Status status = answer(caller, request, response); !status.ok()) {
      return status;
    }
    return response.SerializeAsString();
  };
}

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_SMALL_CALL_H_
