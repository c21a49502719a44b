#include "server/front/call.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "server/front/decode.h"
#include "server/front/encode.h"
#include "server/transfer/time_for.h"

namespace attnd::server {

Call::Call(const ServiceParts& parts, std::shared_ptr<CallStream> stream, Op op,
           CallHeader header)
    : parts_(parts),
      op_(op),
      header_(std::move(header)),
      started_(MonotonicNow()),
      stream_(std::move(stream)) {}

Call::~Call() = default;

void Call::Start() {
  if (!header_.caller.ok()) return Refuse(header_.caller.status());
  const absl::StatusOr<std::optional<int64_t>> hint = header_.Hint();
  if (!hint.ok()) return Refuse(hint.status());
  // Whoever decides first waits until the upload is known here.
  MutexLock lock(mutex_);
  auto upload = parts_.uploads->Enter(
      header_.sender, *hint,
      [self = shared_from_this()](const absl::Status& status) {
        self->OnDecided(status);
      });
  if (!upload.ok()) {
    lock.Unlock();
    return Refuse(upload.status());
  }
  upload_ = *std::move(upload);
  if (upload_->granted()) return Read();
  SetAlarm(started_ + std::min(kMostWait, parts_.stall_time));
}

void Call::OnDecided(const absl::Status& status) {
  if (!status.ok()) return Refuse(status);
  MutexLock lock(mutex_);
  if (state_ == State::kWaiting) Read();
}

void Call::Read() {
  state_ = State::kReading;
  watch_ = std::make_shared<MessageWatch>(
      upload_, parts_.stall_time + TimeFor(upload_->hint().value_or(0)),
      parts_.excess_memory);
  SetAlarm(watch_->next_look());
  // Under the lock, or else the call might end, and its stream with it, before.
  stream_->Read();
}

void Call::SetAlarm(absl::Time due) {
  parts_.alarms->Cancel(alarm_);
  alarm_ = parts_.alarms->Set(due, [self = shared_from_this(), state = state_] {
    self->OnAlarm(state);
  });
}

void Call::OnAlarm(State state) {
  std::shared_ptr<UploadRoom::Upload> upload;
  {
    MutexLock lock(mutex_);
    if (state != state_) return;
    if (state == State::kWaiting) upload = upload_;
  }
  switch (state) {
    case State::kWaiting: {
      const absl::Status status = upload->GiveUp();
      // Its room is back before anybody hears of it.
      upload.reset();
      return status.ok() ? void() : Refuse(status);
    }
    case State::kReading:
      return LookAtMessage();
    case State::kHeld:
      return SubmitAgain();
    case State::kEnding:
      return stream_->Cut();
    case State::kWorking:
      return;
  }
}

void Call::LookAtMessage() {
  std::shared_ptr<MessageWatch> watch;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kReading) return;
    watch = watch_;
  }
  const absl::Status status = watch->Look();
  {
    MutexLock lock(mutex_);
    if (state_ != State::kReading) return;
    if (status.ok()) return SetAlarm(watch->next_look());
    watch_.reset();
  }
  watch.reset();  // it holds the room
  Refuse(status);
}

void Call::OnNoMessage() {
  Refuse(absl::InvalidArgumentError("the call ended without a message"));
}

void Call::OnMessage(absl::Span<const absl::string_view> fragments) {
  auto work = std::make_shared<Work>();
  std::shared_ptr<UploadRoom::Upload> upload;
  {
    MutexLock lock(mutex_);
    // It has come too late.
    if (state_ != State::kReading) return;
    state_ = State::kWorking;
    parts_.alarms->Cancel(std::exchange(alarm_, {}));
    work_ = work;
    upload = upload_;
    watch_.reset();
  }
  received_bytes_ = wire::TotalBytes(fragments);
  absl::Status status = upload->Arrived(received_bytes_);
  upload.reset();
  if (status.ok()) status = Decode(fragments, work);
  if (status.ok()) return Submit(work);
  ReleaseInputs();
  Refuse(status);
}

absl::Status Call::Decode(absl::Span<const absl::string_view> fragments,
                          const WorkPtr& work) {
  absl::Status status = DecodeWork(op_, fragments, parts_.regions, *work);
  if (!status.ok()) return status;
  status =
      CheckResponseFits(*work->request, parts_.max_message_bytes, work->placed);
  if (!status.ok()) return status;
  header_.Sign(*work);
  request_ = work->request;
  work->release_inputs = [self = shared_from_this()] { self->ReleaseInputs(); };
  work->under_way = [self = shared_from_this()] { self->stream_->Announce(); };
  work->done = [self = shared_from_this()](absl::StatusOr<WorkResult> result) {
    self->Complete(std::move(result));
  };
  MutexLock lock(mutex_);
  hold_until_ = MonotonicNow() + std::min(kMostWait, parts_.stall_time);
  // Before it can be done.
  admitted_ = true;
  parts_.admitted_calls->Add();
  return absl::OkStatus();
}

void Call::Submit(const WorkPtr& work) {
  const absl::Status status = parts_.scheduler->Submit(work);
  if (status.ok()) return;
  if (Scheduler::LacksMemory(status) && Hold(*work)) return;
  ReleaseInputs();
  Refuse(status);
}

bool Call::Hold(const Work& work) {
  const absl::Time next = MonotonicNow() + kAskAgain;
  MutexLock lock(mutex_);
  // What is cancelled from now on ends at once: OnCancel.
  if (next > hold_until_ || work.cancel.cancelled()) return false;
  state_ = State::kHeld;
  SetAlarm(next);
  return true;
}

void Call::SubmitAgain() {
  WorkPtr work;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kHeld) return;
    state_ = State::kWorking;
    alarm_ = {};
    work = work_;
  }
  Submit(work);
}

void Call::ReleaseInputs() {
  stream_->DropMessage();
  std::shared_ptr<UploadRoom::Upload> upload;  // ends after the lock
  MutexLock lock(mutex_);
  upload = std::move(upload_);
}

void Call::Complete(absl::StatusOr<WorkResult> result) {
  if (!result.ok()) return Refuse(result.status());
  run_ = RunRecordOf(*request_, *result);
  WorkPtr work;
  {
    MutexLock lock(mutex_);
    work = work_;
  }
  const auto pieces = EncodeResult(*work->request, *result);
  if (!pieces.ok()) return Refuse(pieces.status());
  sent_bytes_ = wire::TotalBytes(*pieces);
  if (!BeginEnd(absl::OkStatus(), sent_bytes_)) return;
  // The pieces borrow the result's buffers, which stay until the transport
  // drops the last slice.
  stream_->Answer(*pieces, [owner = *std::move(result)] {});
}

bool Call::BeginEnd(const absl::Status& status, int64_t bytes) {
  // Both end after the lock.
  std::shared_ptr<UploadRoom::Upload> upload;
  WorkPtr work;
  MutexLock lock(mutex_);
  if (state_ == State::kEnding) return false;
  SetEnding(status, bytes);
  upload = std::move(upload_);
  watch_.reset();
  work = std::move(work_);
  return true;
}

void Call::SetEnding(const absl::Status& status, int64_t bytes) {
  state_ = State::kEnding;
  status_ = status;
  if (!std::exchange(admitted_, true)) parts_.admitted_calls->Add();
  SetAlarm(MonotonicNow() + parts_.stall_time + TimeFor(bytes));
}

void Call::Refuse(const absl::Status& status) {
  if (BeginEnd(status, /*bytes=*/0)) stream_->Refuse(status);
}

void Call::OnCancel() {
  const absl::Status status = absl::CancelledError("cancelled");
  std::shared_ptr<UploadRoom::Upload> upload;
  WorkPtr work;
  State state;
  {
    MutexLock lock(mutex_);
    state = state_;
    if (state == State::kWorking) {
      work = work_;
    } else if (state != State::kEnding) {
      SetEnding(status, /*bytes=*/0);
      upload = std::move(upload_);
      watch_.reset();
      work = std::move(work_);
    }
  }
  if (state == State::kEnding) return;
  if (state == State::kWorking) return parts_.scheduler->Cancel(work);
  // Nobody else has the message by now, if it is here.
  if (state == State::kHeld) stream_->DropMessage();
  stream_->Refuse(status);
}

// Counting waits until the answer has left.
void Call::OnDone(bool cancelled) {
  bool admitted = false;
  {
    MutexLock lock(mutex_);
    parts_.alarms->Cancel(std::exchange(alarm_, {}));
    admitted = admitted_;
  }
  CallRecord record;
  record.method = op_ == Op::kForward ? Method::kForward : Method::kBackward;
  record.code = CodeSeen(header_, started_, status_.code(), cancelled);
  record.status = std::move(status_);
  record.received_bytes = received_bytes_;
  record.sent_bytes = sent_bytes_;
  record.request = std::move(request_);
  record.run = std::move(run_);
  header_.AddToLog(std::move(record), started_, *parts_.calls);
  if (admitted) parts_.admitted_calls->Remove();
}

}  // namespace attnd::server
