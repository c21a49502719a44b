// What a Transfer makes of the server's messages.

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "client/bad_response.h"
#include "client/transfer.h"
#include "client/transfer_stream.h"
#include "proto/wire/chunk_grid.h"

namespace attnd::client {

void Transfer::OnMessage(Stream& stream, Fragments fragments) {
  {
    MutexLock lock(mutex_);
    if (over_) return;
  }
  const absl::StatusOr<ServerPart> part = ReadPart(fragments);
  absl::Status status = part.status();
  if (!part.ok() || std::holds_alternative<UnknownPart>(*part)) {
    // Nothing, or the status.
  } else if (const auto* chunk = std::get_if<ResultChunk>(&*part)) {
    status = TakeChunk(*chunk);
  } else if (&stream != main_) {
    status = BadResponse("part", "only chunks belong on a stream that joined");
  } else if (const auto* grant = std::get_if<Grant>(&*part)) {
    status = Admit(*grant);
  } else if (const auto* missing = std::get_if<MissingInputs>(&*part)) {
    status = ResendInputs(*missing);
  } else {
    status = TakeResponse(fragments);
  }
  if (!status.ok()) Fail(status);
}

absl::Status Transfer::Admit(const Grant& grant) {
  if (grant.streams < 1 || grant.streams > spec_.parts.streams) {
    return BadResponse("admitted.streams",
                       absl::StrCat(grant.streams, " are not within 1 to ",
                                    spec_.parts.streams));
  }
  if (grant.chunk_bytes < wire::kMinChunkBytes ||
      grant.chunk_bytes > wire::kMaxChunkBytes ||
      !absl::has_single_bit(static_cast<uint64_t>(grant.chunk_bytes))) {
    return BadResponse("admitted.chunk_bytes",
                       absl::StrCat(grant.chunk_bytes, " are not allowed"));
  }
  std::vector<Stream*> joining;
  {
    MutexLock lock(mutex_);
    if (admitted_) return BadResponse("admitted", "came twice");
    admitted_ = true;
    plan_ = ChunkPlan(spec_.parts.inputs, grant.chunk_bytes);
    results_ = ResultSink(spec_.parts.outputs, grant.chunk_bytes);
    while (!over_ && streams_.size() < grant.streams) {
      const absl::StatusOr<Stream*> stream = AddStream();
      if (!stream.ok()) break;
      joining.push_back(*stream);
    }
  }
  for (Stream* stream : joining) {
    const std::shared_ptr<ByteStream> bytes = stream->bytes;
    bytes->Start(EncodeJoin(grant.transfer));
  }
  Advance(*main_);
  return absl::OkStatus();
}

absl::Status Transfer::ResendInputs(const MissingInputs& missing) {
  {
    MutexLock lock(mutex_);
    if (!inputs_sent_) {
      return BadResponse("missing", "came before all inputs were sent");
    }
    if (absl::Status status = plan_.AddMissing(missing); !status.ok()) {
      return status;
    }
  }
  Advance(*main_);
  return absl::OkStatus();
}

absl::Status Transfer::TakeChunk(const ResultChunk& chunk) {
  char* to = nullptr;
  bool complete = false;
  {
    MutexLock lock(mutex_);
    if (over_) return absl::OkStatus();
    if (!admitted_) return BadResponse("chunk", "came before admitted");
    const absl::StatusOr<char*> claimed = results_.Claim(chunk);
    if (!claimed.ok()) return claimed.status();
    to = *claimed;
    complete = Complete();
  }
  if (to == nullptr) return absl::OkStatus();  // it has come before
  for (const absl::string_view piece : chunk.pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  if (complete) Advance(*main_);
  return absl::OkStatus();
}

absl::Status Transfer::TakeResponse(Fragments fragments) {
  {
    MutexLock lock(mutex_);
    // It may come before the last chunk is known here to have been sent.
    if (std::exchange(response_came_, true)) {
      return BadResponse("response", "came twice");
    }
  }
  if (absl::Status status = spec_.decode(fragments); !status.ok()) {
    return status;
  }
  {
    MutexLock lock(mutex_);
    responded_ = true;
  }
  // Whoever has not joined by now carries nothing.
  CancelStreams(/*only_not_joined=*/true);
  Advance(*main_);
  return absl::OkStatus();
}

}  // namespace attnd::client
