#include "server/transfer/transfer_table.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/field_error.h"
#include "proto/wire/chunk_grid.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

constexpr absl::string_view kNoRoom = "no memory to receive chunks now";

// 128 bits that nobody can guess. Empty: the kernel has none.
std::string RandomToken() {
  std::string token(16, '\0');
  const ssize_t got = getrandom(token.data(), token.size(), 0);
  return got == static_cast<ssize_t>(token.size()) ? token : "";
}

// The chunks for tensors of `bytes` together, as far as `wanted` allows.
int64_t ChunkBytes(int64_t wanted, int64_t bytes) {
  if (wanted == 0) wanted = TransferTable::kPreferredChunkBytes;
  const auto at_least = static_cast<int64_t>(std::bit_ceil(
      static_cast<uint64_t>(bytes / TransferTable::kMostChunks + 1)));
  const auto power =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(wanted)));
  return std::clamp(std::max(power, at_least), wire::kMinChunkBytes,
                    wire::kMaxChunkBytes);
}

// What a server holds of messages while a transfer's chunks arrive.
int64_t RoomBytes(int streams, int64_t chunk_bytes) {
  return streams * (chunk_bytes + Transfer::kWindowBytes);
}

// Takes room for as many streams as there is, and smaller chunks before none.
absl::Status TakeRoom(absl::FunctionRef<bool(int64_t)> take, int& streams,
                      int64_t& chunk_bytes) {
  while (!take(RoomBytes(streams, chunk_bytes))) {
    if (streams > 1) {
      streams /= 2;
    } else if (chunk_bytes > wire::kMinChunkBytes) {
      chunk_bytes /= 2;
    } else {
      return wire::WithRetryInfo(absl::ResourceExhaustedError(kNoRoom),
                                 absl::Milliseconds(100));
    }
  }
  return absl::OkStatus();
}

}  // namespace

struct TransferTable::State {
  Mutex mutex;
  absl::flat_hash_map<std::string, std::shared_ptr<Transfer>> transfers
      ABSL_GUARDED_BY(mutex);
  bool looking ABSL_GUARDED_BY(mutex) = false;
};

TransferTable::TransferTable(const TransferParts& parts, int max_streams,
                             std::function<int64_t()> excess_memory)
    : parts_(parts),
      max_streams_(max_streams),
      excess_memory_(std::move(excess_memory)),
      state_(std::make_shared<State>()) {}

TransferTable::~TransferTable() = default;

absl::StatusOr<std::shared_ptr<Transfer>> TransferTable::Open(
    const TransferSpec& spec, absl::FunctionRef<bool(int64_t)> take_room,
    std::shared_ptr<void> room) {
  if (spec.streams < 0) {
    return FieldError("header.streams", "must not be negative");
  }
  if (spec.chunk_bytes < 0) {
    return FieldError("header.chunk_bytes", "must not be negative");
  }
  const Request& request = *spec.work->request;
  absl::StatusOr<Reservation> reservation = parts_.scheduler->Admit(*spec.work);
  if (!reservation.ok()) return reservation.status();

  TransferGrant grant;
  grant.streams =
      static_cast<int>(std::clamp<int64_t>(spec.streams, 1, max_streams_));
  grant.chunk_bytes = ChunkBytes(
      spec.chunk_bytes, request.input_bytes() + request.output_bytes());
  absl::Status status = TakeRoom(take_room, grant.streams, grant.chunk_bytes);
  if (!status.ok()) return status;

  const int64_t bytes =
      Incoming(request, spec.streamed.inputs, grant.chunk_bytes).buffer_bytes();
  if (bytes > 0) {
    absl::StatusOr<PlacedInputs> inputs =
        parts_.scheduler->PlaceInputs(*reservation, bytes);
    if (!inputs.ok()) return inputs.status();
    grant.inputs = *std::move(inputs);
  }
  grant.token = RandomToken();
  if (grant.token.empty()) return absl::UnavailableError("no random numbers");
  grant.client = spec.work->client;
  grant.streamed = spec.streamed;
  grant.work = spec.work;
  grant.reservation = *std::move(reservation);
  grant.room = std::move(room);
  grant.ended = [state = state_, token = grant.token] {
    std::shared_ptr<Transfer> transfer;  // goes after the lock
    MutexLock lock(state->mutex);
    auto found = state->transfers.find(token);
    if (found == state->transfers.end()) return;
    transfer = std::move(found->second);
    state->transfers.erase(found);
  };
  const std::string token = grant.token;
  auto transfer = std::make_shared<Transfer>(parts_, std::move(grant));
  {
    MutexLock lock(state_->mutex);
    state_->transfers.emplace(token, transfer);
  }
  LookAtMemory();
  return transfer;
}

bool TransferTable::LacksRoom(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && status.message() == kNoRoom;
}

std::shared_ptr<Transfer> TransferTable::Find(const std::string& token) {
  MutexLock lock(state_->mutex);
  auto found = state_->transfers.find(token);
  return found == state_->transfers.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Transfer>> TransferTable::All() const {
  std::vector<std::shared_ptr<Transfer>> all;
  MutexLock lock(state_->mutex);
  for (const auto& [token, transfer] : state_->transfers) {
    all.push_back(transfer);
  }
  return all;
}

void TransferTable::EndAll(const absl::Status& status) {
  for (const auto& transfer : All()) transfer->End(status);
}

int64_t TransferTable::size() const {
  MutexLock lock(state_->mutex);
  return static_cast<int64_t>(state_->transfers.size());
}

// Rings as long as there are transfers.
void TransferTable::LookAtMemory() {
  if (!excess_memory_) return;
  {
    MutexLock lock(state_->mutex);
    if (state_->looking || state_->transfers.empty()) return;
    state_->looking = true;
  }
  const absl::Time now = MonotonicNow();
  parts_.alarms->Set(now + kLookAtMemory, [this] {
    {
      MutexLock lock(state_->mutex);
      state_->looking = false;
    }
    if (excess_memory_() > kExcess) {
      for (const auto& transfer : All()) transfer->EndIfSuspect(MonotonicNow());
    }
    LookAtMemory();
  });
}

}  // namespace attnd::server
