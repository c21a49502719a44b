#include "server/transfer/transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/field_error.h"
#include "proto/wire/status.h"
#include "server/scheduling/call_refusal.h"
#include "server/transfer/time_for.h"

namespace attnd::server {
namespace {

// One answer, whatever the reason: it tells nobody whose transfers there are.
absl::Status NoSuchTransfer() {
  return absl::NotFoundError("no such transfer, or it is over");
}

}  // namespace

Transfer::Transfer(const TransferParts& parts, TransferGrant grant)
    : parts_(parts),
      token_(std::move(grant.token)),
      client_(std::move(grant.client)),
      streams_(grant.streams),
      chunk_bytes_(grant.chunk_bytes),
      streamed_(grant.streamed),
      request_(grant.work, grant.work->request.get()),
      work_(std::move(grant.work)),
      reservation_(std::move(grant.reservation)),
      inputs_(std::move(grant.inputs)),
      room_(std::move(grant.room)),
      ended_(std::move(grant.ended)),
      incoming_(*request_, streamed_.inputs, chunk_bytes_) {}

Transfer::~Transfer() = default;

void Transfer::Begin(std::shared_ptr<TransferStream> main) {
  bool ready = false;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    if (state_ == State::kEnded) {
      return main->End(absl::UnavailableError("the transfer is over"));
    }
    admitted_ = progress_ = MonotonicNow();
    late_ = admitted_ + parts_.stall_time + TimeFor(incoming_.bytes());
    members_.push_back(std::make_unique<Member>());
    members_[0]->stream = std::move(main);
    // The transfer has the work, whose request it shares: were it the work's in
    // turn, both would stay for ever where the work is never run.
    work_->done = [weak = weak_from_this()](absl::StatusOr<WorkResult> result) {
      if (auto self = weak.lock()) self->OnResult(std::move(result));
    };
    first_.emplace_back([this](TransferStream& stream) {
      stream.SendAdmitted(token_, streams_, chunk_bytes_);
    });
    Pump(calls);
    Read(*members_[0], calls);
    SetAlarm();
    ready = TakeReady();  // nothing is streamed
  }
  if (ready) Submit();
}

absl::Status Transfer::Join(std::shared_ptr<TransferStream> stream,
                            const std::string& client) {
  StreamCalls calls;
  MutexLock lock(mutex_);
  const bool open = state_ == State::kReceiving || state_ == State::kWorking ||
                    state_ == State::kSending;
  if (!open || client != client_) return NoSuchTransfer();
  if (static_cast<int>(members_.size()) >= streams_) {
    return Refused(
        CallRefusal::kTooLarge,
        absl::ResourceExhaustedError(absl::StrCat(
            "the transfer was granted ", streams_, " streams, and has them")));
  }
  members_.push_back(std::make_unique<Member>());
  Member& member = *members_.back();
  member.stream = std::move(stream);
  // Also where all inputs are here: it may carry results.
  Read(member, calls);
  Pump(calls);
  return absl::OkStatus();
}

Transfer::Member* Transfer::Find(TransferStream& stream) {
  for (const auto& member : members_) {
    if (member->stream.get() == &stream) return member.get();
  }
  return nullptr;
}

void Transfer::Read(Member& member, StreamCalls& calls) {
  member.reading = true;
  member.read_since = MonotonicNow();
  calls.Add(member.stream, [](TransferStream& stream) { stream.Read(); });
}

void Transfer::ReadOn(Member& member, StreamCalls& calls) {
  if (member.reading || member.read_ended) return;
  const bool more =
      incoming_.missing() > 0 || (IsMain(member) && !inputs_sent_.has_value());
  if (more || state_ == State::kSent) Read(member, calls);
}

void Transfer::OnChunk(TransferStream& stream, ArrivedChunk chunk) {
  PlacedInputs inputs;
  int64_t at = 0;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    Member* const member = Find(stream);
    if (member == nullptr || state_ == State::kEnded) return;
    member->reading = false;
    const absl::StatusOr<bool> is_new =
        incoming_.Claim(chunk.tensor, chunk.offset, chunk.bytes());
    if (!is_new.ok()) {
      lock.Unlock();
      return End(is_new.status());
    }
    if (!*is_new) return ReadOn(*member, calls);
    progress_ = MonotonicNow();
    ++copying_;
    inputs = inputs_;
    at = incoming_.offset(chunk.tensor) + chunk.offset;
  }
  const absl::Status status = inputs.buffer->Write(at, chunk.pieces);
  inputs = {};
  chunk = {};
  OnCopied(stream, status);
}

void Transfer::OnCopied(TransferStream& stream, const absl::Status& status) {
  bool ready = false;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    if (state_ == State::kEnded) return;
    --copying_;
    Member* const member = Find(stream);
    if (member != nullptr && status.ok()) ReadOn(*member, calls);
    if (status.ok()) ready = TakeReady();
  }
  if (!status.ok()) {
    return End(absl::UnavailableError("the device is out of order"));
  }
  if (ready) Submit();
}

bool Transfer::TakeReady() {
  if (state_ != State::kReceiving || incoming_.missing() > 0 || copying_ > 0) {
    return false;
  }
  state_ = State::kWorking;
  parts_.alarms->Cancel(std::exchange(alarm_, {}));
  return true;
}

void Transfer::Submit() {
  WorkPtr work;
  std::optional<Reservation> reservation;
  std::shared_ptr<void> room;  // goes after the lock
  {
    MutexLock lock(mutex_);
    if (state_ != State::kWorking) return;
    receive_ = MonotonicNow() - admitted_;
    work = work_;
    for (int i = 0; i < kTensorIds; ++i) {
      const TensorId id = static_cast<TensorId>(i);
      // One without bytes needs no place: no pieces are all of it.
      if (!streamed_.inputs[id] || request_->input(id).bytes == 0) continue;
      work->inputs[id] = DeviceBytes{inputs_.buffer, incoming_.offset(id)};
    }
    if (inputs_.buffer != nullptr) work->devices = inputs_.devices;
    inputs_ = {};
    reservation = std::move(reservation_);
    reservation_.reset();
    room = std::move(room_);
  }
  const absl::Status status =
      parts_.scheduler->Submit(*std::move(reservation), work);
  if (!status.ok()) End(status);
}

void Transfer::OnInputsSent(TransferStream& stream, int streams) {
  absl::Status status;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    Member* const member = Find(stream);
    if (member == nullptr || state_ == State::kEnded) return;
    member->reading = false;
    if (!IsMain(*member)) {
      status = FieldError("inputs_sent", "belongs on the first stream");
    } else if (inputs_sent_.has_value()) {
      status = FieldError("inputs_sent", "given more than once");
    } else if (streams < 0 || streams >= streams_) {
      status = FieldError(
          "inputs_sent.streams",
          absl::StrCat(streams, " joined, of at most ", streams_ - 1));
    } else {
      inputs_sent_ = streams;
      status = AskForMissing(calls);
    }
    if (status.ok()) ReadOn(*member, calls);
  }
  if (!status.ok()) End(status);
}

absl::Status Transfer::AskForMissing(StreamCalls& calls) {
  if (state_ != State::kReceiving || incoming_.missing() == 0) {
    return absl::OkStatus();
  }
  const bool all_sent =
      inputs_sent_.has_value() && joined_ended_ >= *inputs_sent_;
  if (all_sent && !asked_ && !main().read_ended) {
    asked_ = true;
    first_.emplace_back(
        [ranges = incoming_.MissingRanges()](TransferStream& stream) {
          stream.SendMissing(ranges);
        });
    Pump(calls);
    return absl::OkStatus();
  }
  const bool others =
      std::any_of(members_.begin(), members_.end(),
                  [](const auto& member) { return !member->read_ended; });
  if (others || (inputs_sent_.has_value() && !all_sent)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the client's side ended, and ", incoming_.missing(),
                   " chunks have not come"));
}

void Transfer::OnReadEnd(TransferStream& stream) {
  absl::Status status;
  bool over = false;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    Member* const member = Find(stream);
    if (member == nullptr || state_ == State::kEnded) return;
    member->reading = false;
    member->read_ended = true;
    if (!IsMain(*member)) ++joined_ended_;
    status = AskForMissing(calls);
    over = state_ == State::kSent && main().read_ended && !IsSending();
  }
  if (over || !status.ok()) End(status);
}

void Transfer::OnMissing(TransferStream& stream,
                         const std::vector<TensorRange>& ranges) {
  absl::Status status;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    Member* const member = Find(stream);
    if (member == nullptr || state_ == State::kEnded) return;
    member->reading = false;
    if (!IsMain(*member) || state_ != State::kSent) {
      status = FieldError("missing",
                          "comes after the response, on the first "
                          "stream");
    } else {
      status = outgoing_.Repeat(ranges);
      if (status.ok()) Pump(calls);
      if (status.ok()) ReadOn(*member, calls);
    }
  }
  if (!status.ok()) End(status);
}

void Transfer::OnResult(absl::StatusOr<WorkResult> result) {
  if (!result.ok()) return End(result.status());
  auto shared = std::make_shared<WorkResult>(*std::move(result));
  StreamCalls calls;
  MutexLock lock(mutex_);
  if (state_ != State::kWorking) return;
  state_ = State::kSending;
  shared->phases.receive = receive_;
  run_ = RunRecordOf(*request_, *shared);
  outgoing_ = Outgoing(shared, streamed_.outputs, chunk_bytes_);
  result_ = {request_, std::move(shared), streamed_};
  work_.reset();
  progress_ = MonotonicNow();
  late_ = progress_ + parts_.stall_time + TimeFor(outgoing_.bytes());
  SetAlarm();
  Pump(calls);
}

bool Transfer::IsSending() {
  return !first_.empty() || !outgoing_.empty() ||
         std::any_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member->sending; });
}

void Transfer::Pump(StreamCalls& calls) {
  // Whoever has the results sends the main stream's itself, which is soonest
  // there, once the other streams' threads know of theirs.
  for (size_t i = members_.size(); i-- > 0;) SendNext(*members_[i], calls);
  if (state_ != State::kSending || !outgoing_.empty()) return;
  // The last chunks are on their way; their streams end behind them.
  state_ = State::kSent;
  EndJoined(calls);
  first_.emplace_back(
      [result = std::exchange(result_, {})](TransferStream& stream) {
        stream.SendResult(result);
      });
  SendNext(main(), calls);
}

void Transfer::SendNext(Member& member, StreamCalls& calls) {
  if (member.sending) return;
  if (IsMain(member) && !first_.empty()) {
    member.sending = true;
    calls.Add(member.stream, std::move(first_.front()));
    first_.pop_front();
    return;
  }
  if (outgoing_.empty()) return;
  member.sending = true;
  member.chunk = outgoing_.Take();
  calls.Add(member.stream, [chunk = *member.chunk, owner = outgoing_.owner(),
                            here = IsMain(member)](TransferStream& stream) {
    stream.SendChunk(chunk.tensor, chunk.offset, chunk.bytes, owner, here);
  });
}

void Transfer::EndJoined(StreamCalls& calls) {
  for (size_t i = members_.size() - 1; i > 0; --i) {
    if (members_[i]->sending) continue;
    calls.Add(members_[i]->stream,
              [](TransferStream& stream) { stream.End(absl::OkStatus()); });
    members_.erase(members_.begin() + i);
  }
}

void Transfer::OnSent(TransferStream& stream, bool ok) {
  bool over = false;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    Member* const member = Find(stream);
    if (member == nullptr || state_ == State::kEnded) return;
    if (!ok) return PutBack(*member);  // OnBroken says the rest
    member->sending = false;
    member->chunk.reset();
    progress_ = MonotonicNow();
    Pump(calls);
    if (state_ == State::kSent) {
      EndJoined(calls);
      if (!IsSending()) {
        over = main().read_ended;
        ReadOn(main(), calls);
      }
    }
  }
  if (over) End(absl::OkStatus());
}

// Once the response is on its way the client asks for what it lacks.
void Transfer::PutBack(Member& member) {
  if (member.chunk.has_value() && state_ != State::kSent) {
    outgoing_.PutBack(*member.chunk);
  }
  member.chunk.reset();
}

void Transfer::OnBroken(TransferStream& stream, const absl::Status& status) {
  absl::Status end;
  bool over = false;
  {
    StreamCalls calls;
    MutexLock lock(mutex_);
    Member* const member = Find(stream);
    if (member == nullptr || state_ == State::kEnded) return;
    if (IsMain(*member)) {
      end = status;
    } else {
      if (!member->read_ended) ++joined_ended_;
      PutBack(*member);
      calls.Add(member->stream,
                [status](TransferStream& gone) { gone.End(status); });
      members_.erase(std::find_if(
          members_.begin(), members_.end(),
          [&](const auto& other) { return other.get() == member; }));
      end = AskForMissing(calls);
      if (end.ok()) Pump(calls);
      if (state_ == State::kSent && !IsSending()) {
        over = main().read_ended;
        ReadOn(main(), calls);
      }
    }
  }
  if (over || !end.ok()) End(end);
}

void Transfer::End(const absl::Status& status) {
  // What goes after the lock.
  WorkPtr work;
  std::optional<Reservation> reservation;
  PlacedInputs inputs;
  std::shared_ptr<void> room;
  Outgoing outgoing;
  TransferResult result;
  absl::AnyInvocable<void()> ended;
  std::vector<std::unique_ptr<Member>> members;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    parts_.alarms->Cancel(std::exchange(alarm_, {}));
    work = std::move(work_);
    reservation = std::move(reservation_);
    reservation_.reset();
    inputs = std::exchange(inputs_, {});
    room = std::move(room_);
    outgoing = std::exchange(outgoing_, {});
    result = std::exchange(result_, {});
    ended = std::move(ended_);
    first_.clear();
    members = std::move(members_);
    members_.clear();
  }
  // Nobody may join any more, and what was reserved is back, before anybody
  // hears of it.
  if (ended) ended();
  if (work != nullptr) parts_.scheduler->Cancel(work);
  reservation.reset();
  inputs = {};
  room.reset();
  for (const auto& member : members) member->stream->End(status);
}

absl::Time Transfer::Due() const {
  return std::min(progress_ + parts_.stall_time, late_);
}

void Transfer::SetAlarm() {
  parts_.alarms->Cancel(alarm_);
  alarm_ = parts_.alarms->Set(Due(),
                              [self = shared_from_this()] { self->OnAlarm(); });
}

// Progress moves no alarm: it looks when it rings.
void Transfer::OnAlarm() {
  absl::string_view what;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kEnded || state_ == State::kWorking) return;
    if (MonotonicNow() < Due()) return SetAlarm();
    what = state_ == State::kReceiving ? "chunks did not arrive"
                                       : "results were not taken";
  }
  End(absl::DeadlineExceededError(
      absl::StrCat(what, " within the stall time")));
}

void Transfer::EndIfSuspect(absl::Time now) {
  {
    MutexLock lock(mutex_);
    const bool suspect = std::any_of(
        members_.begin(), members_.end(), [now](const auto& member) {
          return member->reading && now >= member->read_since + kSuspectAfter;
        });
    if (state_ == State::kEnded || !suspect) return;
  }
  End(wire::WithRetryInfo(
      absl::ResourceExhaustedError(
          "a message is too long, or more arrive than the memory holds"),
      absl::Seconds(1)));
}

std::optional<RunRecord> Transfer::run() const {
  MutexLock lock(mutex_);
  return run_;
}

}  // namespace attnd::server
