#include "server/front/upload_room.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/field_error.h"
#include "proto/wire/metadata.h"
#include "proto/wire/status.h"
#include "server/scheduling/call_refusal.h"

namespace attnd::server {
namespace {

// Of whom something is remembered.
constexpr size_t kRemembered = 1 << 14;

}  // namespace

UploadRoom::UploadRoom(const UploadLimits& limits)
    : limits_(limits),
      small_(limits.small_bytes),
      large_(limits.large_bytes),
      connections_(kRemembered),
      distrusted_(kRemembered) {}

UploadRoom::~UploadRoom() = default;

absl::StatusOr<std::unique_ptr<UploadRoom::Upload>> UploadRoom::Enter(
    Sender sender, std::optional<int64_t> hint, Decided decided,
    std::optional<int64_t> most) {
  if (hint.has_value() && *hint > limits_.max_message_bytes) {
    return Refused(CallRefusal::kTooLarge,
                   absl::ResourceExhaustedError(absl::StrCat(
                       "the message has ", *hint, " bytes, the most is ",
                       limits_.max_message_bytes)));
  }
  std::unique_ptr<Upload> upload(
      new Upload(*this, std::move(sender), hint,
                 std::min(most.value_or(limits_.max_message_bytes),
                          limits_.max_message_bytes),
                 std::move(decided)));
  MutexLock lock(mutex_);
  // A refused one holds nothing that its end would give back.
  upload->state_ = Upload::State::kRefused;
  if (closed_) {
    lock.Unlock();
    return ShuttingDown();
  }
  Classify(*upload);
  absl::Status refusal;
  Decided displaced;
  bool is_in = true;
  if (Allowed(*upload) && HasMemory(*upload) &&
      !IsMemoryWanted(*upload->pool_)) {
    Take(*upload);
  } else {
    is_in = MakeWayFor(*upload, displaced, refusal);
    if (is_in) Wait(*upload);
  }
  lock.Unlock();
  if (!is_in) return refusal;
  if (displaced) displaced(refusal);
  return upload;
}

bool UploadRoom::MakeWayFor(const Upload& upload, Decided& displaced,
                            absl::Status& refusal) {
  Pool& pool = *upload.pool_;
  if (pool.waiting_count < limits_.max_waiting) return true;
  refusal = Refusal("too many messages wait to be read");
  const auto longest =
      std::max_element(pool.waiting.begin(), pool.waiting.end(),
                       [](const auto& one, const auto& other) {
                         return one.second.size() < other.second.size();
                       });
  const auto own = pool.waiting.find(upload.sender_.client);
  const size_t own_size = own == pool.waiting.end() ? 0 : own->second.size();
  if (longest == pool.waiting.end() || longest->second.size() <= own_size + 1) {
    return false;
  }
  Upload& last = *longest->second.back();
  StopWaiting(last);
  last.state_ = Upload::State::kRefused;
  displaced = std::move(last.decided_);
  return true;
}

bool UploadRoom::IsRoomAmongLarge(const Upload& upload, int64_t bytes) const {
  const int64_t others =
      large_.held_bytes - (upload.pool_ == &large_ ? upload.bytes_ : 0);
  return bytes <= large_.limit_bytes - others &&
         large_.shares.MayAdd(upload.sender_.client);
}

bool UploadRoom::Trusts(const std::string& client) {
  const absl::Time* until = distrusted_.Find(client);
  return until == nullptr || *until <= MonotonicNow();
}

void UploadRoom::Classify(Upload& upload) {
  const bool trusted = Trusts(upload.sender_.client);
  if (!trusted) upload.hint_.reset();
  const Seen* seen = connections_.Find(upload.sender_.connection);
  const bool small = upload.hint_.has_value() ? *upload.hint_ <= kSmallBytes
                     : seen == nullptr        ? trusted
                                              : *seen == Seen::kSmall;
  upload.pool_ = small ? &small_ : &large_;
  upload.bytes_ = small ? kSmallBytes : upload.most_;
  if (upload.hint_.has_value()) {
    upload.bytes_ = std::max(*upload.hint_, kLeastBytes);
  }
  upload.unproven_ = small && seen == nullptr;
}

void UploadRoom::TrustWaiting(const Sender& sender) {
  auto line = small_.waiting.find(sender.client);
  if (line == small_.waiting.end()) return;
  for (Upload* upload : line->second) {
    if (upload->sender_.connection == sender.connection) {
      upload->unproven_ = false;
    }
  }
}

bool UploadRoom::MayProbe(const std::string& client) const {
  // Those that turned out to be large may hold more than there is already.
  if (probes_ >= kProbes || large_.held_bytes > large_.limit_bytes) {
    return false;
  }
  auto found = probes_by_client_.find(client);
  return found == probes_by_client_.end() || found->second < kProbesPerClient;
}

bool UploadRoom::Allowed(const Upload& upload) const {
  const std::string& client = upload.sender_.client;
  return upload.pool_->shares.MayAdd(client) &&
         (!upload.unproven_ || MayProbe(client));
}

bool UploadRoom::HasMemory(const Upload& upload) const {
  const Pool& pool = *upload.pool_;
  // Below 0 when messages were longer than expected.
  return upload.bytes_ <= pool.limit_bytes - pool.held_bytes;
}

bool UploadRoom::IsMemoryWanted(const Pool& pool) const {
  return std::any_of(pool.waiting.begin(), pool.waiting.end(),
                     [this](const auto& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                         mutex_) { return Allowed(*line.second.front()); });
}

void UploadRoom::Take(Upload& upload) {
  upload.state_ = Upload::State::kGranted;
  upload.pool_->held_bytes += upload.bytes_;
  upload.pool_->shares.Add(upload.sender_.client,
                           static_cast<double>(upload.bytes_));
  if (!upload.unproven_) return;
  upload.probing_ = true;
  ++probes_;
  ++probes_by_client_[upload.sender_.client];
}

void UploadRoom::Release(Upload& upload) {
  Pool& pool = *upload.pool_;
  if (&pool == &large_ && large_.waiting_count > 0) {
    const absl::Time now = MonotonicNow();
    rate_.Add(static_cast<double>(upload.bytes_), now - contended_since_);
    contended_since_ = now;
  }
  pool.held_bytes -= upload.bytes_;
  pool.shares.Remove(upload.sender_.client, static_cast<double>(upload.bytes_));
}

void UploadRoom::Move(Upload& upload, Pool& pool, int64_t bytes) {
  const std::string& client = upload.sender_.client;
  pool.held_bytes += bytes;
  pool.shares.Add(client, static_cast<double>(bytes));
  Pool& from = *std::exchange(upload.pool_, &pool);
  from.held_bytes -= upload.bytes_;
  from.shares.Remove(client, static_cast<double>(upload.bytes_));
  upload.bytes_ = bytes;
}

void UploadRoom::EndProbe(Upload& upload) {
  if (!std::exchange(upload.probing_, false)) return;
  --probes_;
  auto found = probes_by_client_.find(upload.sender_.client);
  if (--found->second == 0) probes_by_client_.erase(found);
}

void UploadRoom::Wait(Upload& upload) {
  upload.state_ = Upload::State::kWaiting;
  Pool& pool = *upload.pool_;
  if (pool.waiting_count == 0) contended_since_ = MonotonicNow();
  ++pool.waiting_count;
  waiting_bytes_ += upload.bytes_;
  auto [line, is_new] = pool.waiting.try_emplace(upload.sender_.client);
  line->second.push_back(&upload);
  upload.place_ = std::prev(line->second.end());
  if (is_new) pool.turns.push_back(upload.sender_.client);
}

void UploadRoom::StopWaiting(Upload& upload) {
  Pool& pool = *upload.pool_;
  const std::string& client = upload.sender_.client;
  --pool.waiting_count;
  waiting_bytes_ -= upload.bytes_;
  auto line = pool.waiting.find(client);
  line->second.erase(upload.place_);
  if (!line->second.empty()) return;
  pool.waiting.erase(line);
  pool.turns.erase(std::find(pool.turns.begin(), pool.turns.end(), client));
}

std::vector<UploadRoom::Decided> UploadRoom::Grant() {
  std::vector<Decided> granted;
  GrantIn(small_, granted);
  GrantIn(large_, granted);
  return granted;
}

void UploadRoom::GrantIn(Pool& pool, std::vector<Decided>& granted) {
  // A client whose own share is used up is passed over. Where memory is what is
  // missing, all wait for whoever's turn it is: otherwise large ones would
  // never get any.
  size_t passed_over = 0;
  while (passed_over < pool.turns.size()) {
    const std::string client = pool.turns.front();
    Upload& upload = *pool.waiting.find(client)->second.front();
    const bool allowed = Allowed(upload);
    if (allowed && !HasMemory(upload)) return;
    pool.turns.pop_front();
    pool.turns.push_back(client);
    if (!allowed) {
      ++passed_over;
      continue;
    }
    passed_over = 0;
    StopWaiting(upload);
    Take(upload);
    granted.push_back(std::move(upload.decided_));
  }
}

absl::Status UploadRoom::Refusal(absl::string_view why) {
  ++refused_;
  return wire::WithRetryInfo(
      Refused(CallRefusal::kMemory, absl::ResourceExhaustedError(why)),
      rate_.RetryDelay(static_cast<double>(waiting_bytes_), /*lanes=*/1));
}

void UploadRoom::Close() {
  std::vector<Decided> refused;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (Pool* pool : {&small_, &large_}) {
      while (!pool->turns.empty()) {
        Upload& upload =
            *pool->waiting.find(pool->turns.front())->second.front();
        StopWaiting(upload);
        upload.state_ = Upload::State::kRefused;
        refused.push_back(std::move(upload.decided_));
      }
    }
  }
  for (Decided& decided : refused) {
    decided(ShuttingDown());
  }
}

UploadStats UploadRoom::stats() const {
  MutexLock lock(mutex_);
  return {small_.held_bytes + large_.held_bytes,
          limits_.small_bytes + limits_.large_bytes,
          small_.waiting_count + large_.waiting_count, refused_};
}

UploadRoom::Upload::~Upload() {
  std::vector<Decided> granted;
  {
    MutexLock lock(room_.mutex_);
    if (state_ == State::kWaiting) room_.StopWaiting(*this);
    if (state_ == State::kGranted) {
      room_.EndProbe(*this);
      room_.Release(*this);
    }
    granted = room_.Grant();
  }
  for (Decided& decided : granted) decided(absl::OkStatus());
}

bool UploadRoom::Upload::granted() const {
  MutexLock lock(room_.mutex_);
  return state_ == State::kGranted;
}

std::optional<absl::Duration> UploadRoom::Upload::late_after() const {
  MutexLock lock(room_.mutex_);
  if (pool_ == &room_.large_) return std::nullopt;
  return unproven_ ? kProbeTime : kSmallTime;
}

std::optional<int64_t> UploadRoom::Upload::hint() const {
  MutexLock lock(room_.mutex_);
  return hint_;
}

absl::Status UploadRoom::Upload::Arrived(int64_t bytes) {
  absl::Status status;
  std::vector<Decided> granted;
  {
    MutexLock lock(room_.mutex_);
    room_.EndProbe(*this);
    room_.connections_.Set(sender_.connection,
                           bytes <= kSmallBytes ? Seen::kSmall : Seen::kLarge);
    if (unproven_ && bytes <= kSmallBytes) room_.TrustWaiting(sender_);
    if (hint_.has_value() && bytes > *hint_) {
      room_.distrusted_.Set(sender_.client, MonotonicNow() + kDistrustTime);
      status =
          FieldError(wire::kRequestBytesKey,
                     absl::StrCat("says ", *hint_, ", and the message has ",
                                  bytes, " bytes"));
    }
    room_.Move(*this, bytes <= kSmallBytes ? *pool_ : room_.large_,
               std::max(bytes, kLeastBytes));
    granted = room_.Grant();
  }
  for (Decided& decided : granted) decided(absl::OkStatus());
  return status;
}

absl::Status UploadRoom::Upload::Late(int64_t spare_bytes) {
  absl::Status status;
  std::vector<Decided> granted;
  {
    MutexLock lock(room_.mutex_);
    if (pool_ == &room_.large_) return absl::OkStatus();
    // Its length is known, and nobody wants what it holds.
    if (hint_.has_value() && pool_->waiting_count == 0) {
      return absl::OkStatus();
    }
    // Should the hint be a lie, and another one, there is memory for both.
    const bool is_plenty = spare_bytes >= 2 * most_;
    if (hint_.has_value() && is_plenty && !std::exchange(was_late_, true)) {
      room_.EndProbe(*this);
      granted = room_.Grant();
    } else {
      status = CountAsLarge(granted);
    }
  }
  for (Decided& decided : granted) decided(absl::OkStatus());
  return status;
}

absl::Status UploadRoom::Upload::CountAsLarge(std::vector<Decided>& granted) {
  room_.connections_.Set(sender_.connection, Seen::kLarge);
  if (hint_.has_value()) {
    room_.distrusted_.Set(sender_.client, MonotonicNow() + kDistrustTime);
  }
  if (!room_.IsRoomAmongLarge(*this, most_)) {
    return room_.Refusal("a message that takes long, and no memory for it");
  }
  room_.EndProbe(*this);
  room_.Move(*this, room_.large_, most_);
  granted = room_.Grant();
  return absl::OkStatus();
}

bool UploadRoom::Upload::Resize(int64_t bytes) {
  std::vector<Decided> granted;
  {
    MutexLock lock(room_.mutex_);
    if (!room_.IsRoomAmongLarge(*this, bytes)) return false;
    room_.Move(*this, room_.large_, bytes);
    granted = room_.Grant();
  }
  for (Decided& decided : granted) decided(absl::OkStatus());
  return true;
}

absl::Status UploadRoom::Upload::GiveUp() {
  MutexLock lock(room_.mutex_);
  if (state_ != State::kWaiting) return absl::OkStatus();
  room_.StopWaiting(*this);
  state_ = State::kRefused;
  return room_.Refusal("no memory to read the message now");
}

absl::Status UploadRoom::Upload::Excess() {
  MutexLock lock(room_.mutex_);
  if (room_.small_.held_bytes + room_.large_.held_bytes == bytes_) {
    ++room_.refused_;
    return Refused(CallRefusal::kTooLarge,
                   absl::ResourceExhaustedError("the message is too long"));
  }
  return room_.Refusal(
      "the message is too long, or more are than the memory holds");
}

}  // namespace attnd::server
