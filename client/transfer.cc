#include "client/transfer.h"

#include <utility>

#include "client/bad_response.h"
#include "client/transfer_stream.h"

namespace attnd::client {
namespace {

constexpr char kExchange[] = "/attn.v1.AttentionService/Exchange";

}  // namespace

std::shared_ptr<Transfer> Transfer::Start(TransferSpec& spec,
                                          Transport& transport,
                                          Executor& executor,
                                          const CallHeaders& headers,
                                          Done done) {
  auto transfer = std::make_shared<Transfer>(spec, transport, executor, headers,
                                             std::move(done));
  absl::StatusOr<Stream*> main;
  {
    MutexLock lock(transfer->mutex_);
    main = transfer->AddStream();
    if (main.ok()) transfer->main_ = *main;
  }
  if (!main.ok()) {
    executor.Post(
        [transfer, status = main.status()] { transfer->Finish({status}); });
    return transfer;
  }
  transfer->keep_alive_ = transfer;
  const std::shared_ptr<ByteStream> bytes = (*main)->bytes;
  bytes->Start(spec.parts.header);
  return transfer;
}

Transfer::Transfer(TransferSpec& spec, Transport& transport, Executor& executor,
                   const CallHeaders& headers, Done done)
    : spec_(spec),
      transport_(transport),
      executor_(executor),
      headers_(headers),
      turn_(transport.TakeTurn()),
      done_(std::move(done)) {}

Transfer::~Transfer() = default;

void Transfer::Cancel() { CancelStreams(/*only_not_joined=*/false); }

absl::StatusOr<Transfer::Stream*> Transfer::AddStream() {
  auto stream = std::make_unique<Stream>(*this);
  auto bytes = transport_.OpenStream(
      kExchange, turn_ + static_cast<uint32_t>(streams_.size()), headers_,
      *stream);
  if (!bytes.ok()) return bytes.status();
  stream->bytes = *std::move(bytes);
  ++live_;
  return streams_.emplace_back(std::move(stream)).get();
}

Transfer::Step Transfer::NextStep(Stream& stream) {
  if (over_ || stream.writing || stream.broken || stream.closed) return {};
  Step step = &stream == main_ ? NextMainStep() : NextJoinedStep();
  switch (step.kind) {
    case Step::Kind::kChunk:
      stream.sending = step.chunk;
      ++chunks_in_flight_;
      [[fallthrough]];
    case Step::Kind::kWrite:
      stream.writing = true;
      break;
    case Step::Kind::kClose:
      stream.closed = true;
      break;
    case Step::Kind::kNone:
      break;
  }
  return step;
}

Transfer::Step Transfer::NextMainStep() {
  if (!admitted_) return {};
  if (Complete()) return {Step::Kind::kClose, {}, {}};
  if (responded_ && !asked_again_ && !ResultsMayCome()) {
    asked_again_ = true;
    return {Step::Kind::kWrite, EncodeMissing(results_.Missing()), {}};
  }
  if (const auto chunk = plan_.Next()) return {Step::Kind::kChunk, {}, *chunk};
  // Another stream may yet fail to send its last chunk.
  if (inputs_sent_ || chunks_in_flight_ > 0) return {};
  inputs_sent_ = true;
  return {Step::Kind::kWrite, EncodeInputsSent(JoinedStreams()), {}};
}

Transfer::Step Transfer::NextJoinedStep() {
  // What did not arrive is sent again on the main stream.
  if (!inputs_sent_) {
    if (const auto chunk = plan_.Next()) {
      return {Step::Kind::kChunk, {}, *chunk};
    }
  }
  return {Step::Kind::kClose, {}, {}};
}

void Transfer::Advance(Stream& stream) {
  Step step, main_step;
  {
    MutexLock lock(mutex_);
    step = NextStep(stream);
    if (&stream != main_) main_step = NextStep(*main_);
  }
  Take(stream, step);
  Take(*main_, main_step);
}

void Transfer::Take(Stream& stream, const Step& step) {
  switch (step.kind) {
    case Step::Kind::kWrite:
      return stream.bytes->Write(step.message);
    case Step::Kind::kChunk:
      return stream.bytes->Write(EncodeChunk(step.chunk));
    case Step::Kind::kClose:
      return stream.bytes->CloseWrites();
    case Step::Kind::kNone:
      return;
  }
}

void Transfer::OnWritten(Stream& stream, bool ok) {
  {
    MutexLock lock(mutex_);
    stream.writing = false;
    if (ok) {
      stream.started = true;
      if (stream.sending.has_value()) --chunks_in_flight_;
      stream.sending.reset();
    } else {
      stream.broken = true;
      ReturnChunk(stream);
    }
  }
  Advance(stream);
}

void Transfer::OnEnd(Stream& stream, absl::Status status) {
  executor_.Post([this, &stream, status = std::move(status)] {
    EndStream(stream, status);
  });
}

void Transfer::EndStream(Stream& stream, const absl::Status& status) {
  // Another stream may end meanwhile, on another thread, and be the last.
  const std::shared_ptr<Transfer> self = shared_from_this();
  const bool is_main = &stream == main_;
  TransferResult result;
  bool last = false;
  {
    MutexLock lock(mutex_);
    stream.ended = stream.broken = true;
    ReturnChunk(stream);
    if (is_main) {
      main_status_ = status;
      over_ = true;
    }
    last = --live_ == 0;
    if (last) result = Outcome();
  }
  if (last) return Finish(std::move(result));
  if (is_main) return CancelStreams(/*only_not_joined=*/false);
  Advance(*main_);
}

void Transfer::ReturnChunk(Stream& stream) {
  if (!stream.sending.has_value()) return;
  plan_.PutBack(*stream.sending);
  stream.sending.reset();
  --chunks_in_flight_;
}

int Transfer::JoinedStreams() const {
  int joined = 0;
  for (const auto& stream : streams_) {
    joined += stream.get() != main_ && stream->started && !stream->broken;
  }
  return joined;
}

bool Transfer::ResultsMayCome() const {
  for (const auto& stream : streams_) {
    if (stream.get() != main_ && !stream->ended) return true;
  }
  return false;
}

void Transfer::Fail(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(over_, true)) return;
    failure_ = status;
  }
  CancelStreams(/*only_not_joined=*/false);
}

void Transfer::CancelStreams(bool only_not_joined) {
  std::vector<std::shared_ptr<ByteStream>> cancelled;
  {
    MutexLock lock(mutex_);
    for (const auto& stream : streams_) {
      if (stream->ended || (only_not_joined && stream->started)) continue;
      cancelled.push_back(stream->bytes);
    }
  }
  for (const auto& stream : cancelled) stream->Cancel();
}

TransferResult Transfer::Outcome() const {
  TransferResult result;
  result.admitted = admitted_;
  result.streams = 0;
  for (const auto& stream : streams_) result.streams += stream->started;
  if (!failure_.ok()) {
    result.status = failure_;
  } else if (!main_status_.ok() || Complete()) {
    result.status = main_status_;
  } else {
    result.status = BadResponse("results", "did not arrive");
  }
  return result;
}

void Transfer::Finish(TransferResult result) {
  const std::shared_ptr<Transfer> self = std::move(keep_alive_);
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace attnd::client
