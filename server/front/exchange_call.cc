#include "server/front/exchange_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/field_error.h"
#include "server/front/decode.h"
#include "server/front/encode.h"
#include "server/front/tensor_fields.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;

// The tensor that a message calls by `number`. INVALID_ARGUMENT: there is none.
absl::StatusOr<TensorId> TensorOf(absl::Span<const TensorField> fields,
                                  int number, absl::string_view field) {
  for (const TensorField& entry : fields) {
    if (entry.number == number) return entry.id;
  }
  return FieldError(field, absl::StrCat(number, " is not a tensor's number"));
}

absl::StatusOr<std::vector<TensorRange>> RangesOf(Op op,
                                                  const pb::Missing& missing) {
  std::vector<TensorRange> ranges;
  ranges.reserve(missing.ranges_size());
  for (const pb::Missing::Range& range : missing.ranges()) {
    auto tensor =
        TensorOf(ResultFields(op), range.tensor(), "missing.ranges.tensor");
    if (!tensor.ok()) return tensor.status();
    ranges.push_back({*tensor, {range.offset(), range.bytes()}});
  }
  return ranges;
}

}  // namespace

ExchangeCall::ExchangeCall(const ServiceParts& parts,
                           std::shared_ptr<MessageStream> stream,
                           CallHeader header)
    : parts_(parts),
      header_(std::move(header)),
      started_(MonotonicNow()),
      stream_(std::move(stream)) {}

ExchangeCall::~ExchangeCall() = default;

void ExchangeCall::Start() {
  if (!header_.caller.ok()) return End(header_.caller.status());
  const absl::StatusOr<std::optional<int64_t>> hint = header_.Hint();
  if (!hint.ok()) return End(hint.status());
  if (hint->value_or(0) > kFirstMessageBytes) {
    return End(FieldError("header",
                          absl::StrCat("has ", **hint, " bytes, the most is ",
                                       wire::kMaxHeaderBytes)));
  }
  // Whoever decides first waits until the upload is known here.
  MutexLock lock(mutex_);
  auto upload = parts_.uploads->Enter(
      header_.sender, hint->value_or(kFirstMessageBytes),
      [self = shared_from_this()](const absl::Status& status) {
        self->OnDecided(status);
      },
      kFirstMessageBytes);
  if (!upload.ok()) {
    lock.Unlock();
    return End(upload.status());
  }
  upload_ = *std::move(upload);
  if (upload_->granted()) return ReadFirst();
  SetAlarm(started_ + std::min(Call::kMostWait, parts_.stall_time));
}

void ExchangeCall::OnDecided(const absl::Status& status) {
  if (!status.ok()) return End(status);
  MutexLock lock(mutex_);
  if (state_ == State::kWaiting) ReadFirst();
}

void ExchangeCall::ReadFirst() {
  state_ = State::kReading;
  watch_ = std::make_shared<MessageWatch>(upload_, parts_.header_time,
                                          parts_.excess_memory);
  SetAlarm(watch_->next_look());
  stream_->Read();
}

void ExchangeCall::SetAlarm(absl::Time due) {
  parts_.alarms->Cancel(alarm_);
  alarm_ = parts_.alarms->Set(due, [self = shared_from_this(), state = state_] {
    self->OnAlarm(state);
  });
}

void ExchangeCall::OnAlarm(State state) {
  std::shared_ptr<UploadRoom::Upload> upload;
  {
    MutexLock lock(mutex_);
    if (state != state_) return;
    if (state == State::kWaiting) upload = upload_;
  }
  switch (state) {
    case State::kWaiting: {
      const absl::Status status = upload->GiveUp();
      upload.reset();
      return status.ok() ? void() : End(status);
    }
    case State::kReading:
      return LookAtMessage();
    case State::kHeld:
      return OpenAgain();
    case State::kEnding:
      return stream_->Cut();
    case State::kOpening:
    case State::kMember:
      return;
  }
}

void ExchangeCall::LookAtMessage() {
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
  End(status);
}

void ExchangeCall::OnMessage(std::unique_ptr<ReceivedMessage> message) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    received_bytes_ += wire::TotalBytes(message->fragments());
    if (state_ == State::kReading) {
      first = true;
      state_ = State::kOpening;
      parts_.alarms->Cancel(std::exchange(alarm_, {}));
      watch_.reset();
    } else if (state_ != State::kMember) {
      return;  // it has come too late
    }
  }
  if (first) return OnFirst(std::move(message));
  OnPart(std::move(message));
}

absl::Status ExchangeCall::Decode(const ReceivedMessage& message,
                                  pb::ExchangeRequest& request) {
  std::vector<wire::TensorData> data;
  return wire::Decode(message.fragments(), wire::UnknownFields::kRefuse,
                      request, data);
}

void ExchangeCall::OnFirst(std::unique_ptr<ReceivedMessage> message) {
  std::shared_ptr<UploadRoom::Upload> upload;
  {
    MutexLock lock(mutex_);
    upload = upload_;
  }
  absl::Status status;
  if (upload != nullptr) {
    status = upload->Arrived(wire::TotalBytes(message->fragments()));
  }
  upload.reset();
  auto request = std::make_shared<pb::ExchangeRequest>();
  if (status.ok()) status = Decode(*message, *request);
  message.reset();
  if (!status.ok()) return End(status);
  switch (request->part_case()) {
    case pb::ExchangeRequest::kJoin:
      return Join(request->join().transfer());
    case pb::ExchangeRequest::kHeader:
      break;
    default:
      return End(absl::InvalidArgumentError(
          "the first message of an Exchange is a header or a join"));
  }
  auto spec = DecodeExchangeHeader(std::move(request), parts_.regions);
  if (!spec.ok()) return End(spec.status());
  const Work& work = *spec->work;
  status = CheckInlineFits(*work.request, spec->streamed.outputs, work.placed);
  if (!status.ok()) return End(status);
  header_.Sign(*spec->work);
  {
    MutexLock lock(mutex_);
    if (state_ != State::kOpening) return;
    spec_ = *std::move(spec);
    hold_until_ = MonotonicNow() + std::min(Call::kMostWait, parts_.stall_time);
  }
  Open();
}

void ExchangeCall::Open() {
  std::shared_ptr<UploadRoom::Upload> upload;
  TransferSpec spec;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kOpening) return;
    upload = upload_;
    spec = spec_;
  }
  absl::StatusOr<std::shared_ptr<Transfer>> transfer = parts_.transfers->Open(
      spec, [&](int64_t bytes) { return upload->Resize(bytes); }, upload);
  if (!transfer.ok()) {
    const bool may_pass = Scheduler::LacksMemory(transfer.status()) ||
                          TransferTable::LacksRoom(transfer.status());
    if (may_pass && Hold()) return;
    return End(transfer.status());
  }
  {
    MutexLock lock(mutex_);
    main_ = true;
    // Before it can end.
    if (!std::exchange(admitted_, true)) parts_.admitted_calls->Add();
  }
  if (!BecomeMember(*transfer)) {
    return (*transfer)->End(absl::CancelledError("cancelled"));
  }
  (*transfer)->Begin(shared_from_this());
  OnMember();
}

bool ExchangeCall::Hold() {
  const absl::Time next = MonotonicNow() + Call::kAskAgain;
  MutexLock lock(mutex_);
  if (next > hold_until_ || state_ != State::kOpening) return false;
  state_ = State::kHeld;
  SetAlarm(next);
  return true;
}

void ExchangeCall::OpenAgain() {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kHeld) return;
    state_ = State::kOpening;
    alarm_ = {};
  }
  Open();
}

void ExchangeCall::Join(const std::string& token) {
  std::shared_ptr<Transfer> transfer = parts_.transfers->Find(token);
  if (transfer == nullptr) {
    return End(absl::NotFoundError("no such transfer, or it is over"));
  }
  if (!BecomeMember(transfer)) return;
  const absl::Status status =
      transfer->Join(shared_from_this(), header_.sender.client);
  if (!status.ok()) return End(status);
  OnMember();
}

bool ExchangeCall::BecomeMember(std::shared_ptr<Transfer> transfer) {
  // What end after the lock: room for chunks is the transfer's.
  std::shared_ptr<UploadRoom::Upload> upload;
  TransferSpec spec;
  MutexLock lock(mutex_);
  if (state_ != State::kOpening) return false;
  state_ = State::kMember;
  transfer_ = std::move(transfer);
  upload = std::move(upload_);
  spec = std::exchange(spec_, {});
  return true;
}

void ExchangeCall::OnMember() {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(mutex_);
    known_ = true;
    if (!cancelled_) return;
    transfer = transfer_;
  }
  // It was cancelled before the transfer could hear of it.
  if (transfer != nullptr) {
    transfer->OnBroken(*this, absl::UnavailableError("a stream was cancelled"));
  }
}

void ExchangeCall::OnPart(std::unique_ptr<ReceivedMessage> message) {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(mutex_);
    transfer = transfer_;
  }
  if (transfer == nullptr) return;
  pb::ExchangeRequest request;
  std::vector<wire::TensorData> data;
  const absl::Status status = wire::Decode(
      message->fragments(), wire::UnknownFields::kRefuse, request, data);
  if (!status.ok()) return transfer->OnGarbled(status);
  switch (request.part_case()) {
    case pb::ExchangeRequest::kChunk:
      return OnChunk(*transfer, request.chunk(), data, std::move(message));
    case pb::ExchangeRequest::kInputsSent:
      return transfer->OnInputsSent(*this, request.inputs_sent().streams());
    case pb::ExchangeRequest::kMissing: {
      auto ranges = RangesOf(transfer->op(), request.missing());
      if (!ranges.ok()) return transfer->OnGarbled(ranges.status());
      return transfer->OnMissing(*this, *ranges);
    }
    case pb::ExchangeRequest::kHeader:
    case pb::ExchangeRequest::kJoin:
    case pb::ExchangeRequest::PART_NOT_SET:
      return transfer->OnGarbled(absl::InvalidArgumentError(
          "after the first message of a stream come chunk, inputs_sent and "
          "missing"));
  }
}

void ExchangeCall::OnChunk(Transfer& transfer, const pb::Chunk& chunk,
                           const std::vector<wire::TensorData>& data,
                           std::unique_ptr<ReceivedMessage> message) {
  auto tensor =
      TensorOf(InputFields(transfer.op()), chunk.tensor(), "chunk.tensor");
  if (!tensor.ok()) return transfer.OnGarbled(tensor.status());
  ArrivedChunk arrived;
  arrived.tensor = *tensor;
  arrived.offset = chunk.offset();
  for (const wire::TensorData& part : data) {
    for (absl::string_view piece : part.pieces) {
      arrived.pieces.emplace_back(
          reinterpret_cast<const std::byte*>(piece.data()), piece.size());
    }
  }
  arrived.message = std::move(message);
  transfer.OnChunk(*this, std::move(arrived));
}

void ExchangeCall::OnReadEnd() {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kEnding) return;
    transfer = transfer_;
  }
  if (transfer != nullptr) return transfer->OnReadEnd(*this);
  End(absl::InvalidArgumentError("the stream ended without a message"));
}

void ExchangeCall::OnWritten(bool ok) {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (state_ == State::kEnding) return Finish();
    transfer = transfer_;
  }
  if (transfer != nullptr) transfer->OnSent(*this, ok);
}

void ExchangeCall::OnCancel() {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (state_ == State::kEnding) return;
    if (state_ == State::kMember) {
      if (!known_) return;  // OnMember says it
      transfer = transfer_;
    }
  }
  if (transfer != nullptr) {
    return transfer->OnBroken(*this,
                              absl::UnavailableError("a stream was cancelled"));
  }
  End(absl::CancelledError("cancelled"));
}

void ExchangeCall::OnDone(bool cancelled) {
  CallRecord record;
  record.method = Method::kExchange;
  std::shared_ptr<Transfer> transfer;
  bool admitted = false, main = false;
  {
    MutexLock lock(mutex_);
    parts_.alarms->Cancel(std::exchange(alarm_, {}));
    transfer = std::move(transfer_);
    admitted = admitted_;
    main = main_;
    record.status = status_;
    record.received_bytes = received_bytes_;
    record.sent_bytes = sent_bytes_;
  }
  if (main && transfer != nullptr) {
    record.request = transfer->request();
    record.run = transfer->run();
  }
  record.code = CodeSeen(header_, started_, record.status.code(), cancelled);
  header_.AddToLog(std::move(record), started_, *parts_.calls);
  if (admitted) parts_.admitted_calls->Remove();
}

void ExchangeCall::Read() { stream_->Read(); }

void ExchangeCall::SendAdmitted(const std::string& token, int streams,
                                int64_t chunk_bytes) {
  Write(EncodeAdmitted(token, streams, chunk_bytes), nullptr, /*here=*/true);
}

void ExchangeCall::SendMissing(const std::vector<TensorRange>& ranges) {
  std::shared_ptr<Transfer> transfer;
  {
    MutexLock lock(mutex_);
    transfer = transfer_;
  }
  if (transfer == nullptr) return;  // it is over
  Write(EncodeMissing(transfer->op(), ranges), nullptr, /*here=*/true);
}

void ExchangeCall::SendChunk(TensorId tensor, int64_t offset,
                             ConstHostSpan bytes,
                             std::shared_ptr<const void> owner, bool here) {
  Write(EncodeChunk(tensor, offset, bytes), std::move(owner), here);
}

void ExchangeCall::SendResult(const TransferResult& result) {
  Write(EncodeTransferResult(result), nullptr, /*here=*/true);
}

void ExchangeCall::Write(const std::vector<wire::Piece>& pieces,
                         std::shared_ptr<const void> owner, bool here) {
  {
    MutexLock lock(mutex_);
    if (state_ == State::kEnding) return;
    writing_ = true;
    sent_bytes_ += wire::TotalBytes(pieces);
  }
  stream_->Write(
      pieces, [owner = std::move(owner)] {}, here);
}

void ExchangeCall::End(const absl::Status& status) {
  // What goes after the lock.
  std::shared_ptr<UploadRoom::Upload> upload;
  std::shared_ptr<MessageWatch> watch;
  TransferSpec spec;
  MutexLock lock(mutex_);
  if (state_ == State::kEnding) return;
  state_ = State::kEnding;
  status_ = status;
  upload = std::move(upload_);
  watch = std::move(watch_);
  spec = std::exchange(spec_, {});
  // A refusal is to leave before the server ends.
  if (!std::exchange(admitted_, true)) parts_.admitted_calls->Add();
  if (!writing_) return Finish();
  const absl::Duration most = status.ok() ? parts_.stall_time : kLastWrite;
  SetAlarm(MonotonicNow() + std::min(most, parts_.stall_time));
}

void ExchangeCall::Finish() {
  SetAlarm(MonotonicNow() + parts_.stall_time);
  stream_->Finish(status_);
}

}  // namespace attnd::server
