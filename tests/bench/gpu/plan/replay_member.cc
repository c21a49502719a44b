#include "tests/bench/gpu/plan/replay_member.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace attnd::bench {
namespace {

// What is filled at once.
constexpr int64_t kPoisonBytes = int64_t{16} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ReplayMember>> ReplayMember::Create(
    Backend& backend) {
  absl::StatusOr<std::unique_ptr<MemberStream>> memory =
      backend.NewMemberStream();
  if (!memory.ok()) return memory.status();
  absl::StatusOr<std::unique_ptr<MemberStream>> work =
      backend.NewMemberStream();
  if (!work.ok()) return work.status();
  std::unique_ptr<ReplayMember> member(new ReplayMember(
      backend.host_memory(), *std::move(memory), *std::move(work)));
  absl::Status status = member->MakePoison();
  if (!status.ok()) return status;
  return member;
}

ReplayMember::~ReplayMember() {
  memory_->Wait().status().IgnoreError();
  if (host_poison_ != nullptr) host_memory_->Free(host_poison_, kPoisonBytes);
}

absl::Status ReplayMember::MakePoison() {
  host_poison_ = host_memory_->Allocate(kPoisonBytes);
  if (host_poison_ == nullptr) {
    return absl::ResourceExhaustedError("no host memory");
  }
  std::memset(host_poison_, 0xff, kPoisonBytes);
  absl::StatusOr<std::byte*> poison = memory_->Allocate(kPoisonBytes);
  if (!poison.ok()) return poison.status();
  poison_ = *poison;
  absl::Status status = memory_->Upload(
      {.from = host_poison_, .to = poison_, .row_bytes = kPoisonBytes});
  status.Update(memory_->Wait().status());
  return status;
}

absl::Status ReplayMember::FillRun(std::byte* to, int64_t bytes) {
  absl::Status status;
  for (int64_t at = 0; at < bytes && status.ok(); at += kPoisonBytes) {
    status = memory_->Pull(*memory_,
                           {.from = poison_,
                            .to = to + at,
                            .row_bytes = std::min(bytes - at, kPoisonBytes)});
  }
  return status;
}

// Where the copy has written.
absl::Status ReplayMember::Fill(const BlockCopy& copy) {
  if (copy.rows == 1 || copy.to_pitch == copy.row_bytes) {
    return FillRun(copy.to, copy.rows * copy.row_bytes);
  }
  const int64_t most = kPoisonBytes / std::max<int64_t>(copy.row_bytes, 1);
  absl::Status status;
  for (int64_t row = 0; row < copy.rows && status.ok();) {
    std::byte* const to = copy.to + row * copy.to_pitch;
    const int64_t rows = std::clamp<int64_t>(most, 1, copy.rows - row);
    status = rows == 1 ? FillRun(to, copy.row_bytes)
                       : memory_->Pull(*memory_, {.from = poison_,
                                                  .to = to,
                                                  .row_bytes = copy.row_bytes,
                                                  .rows = rows,
                                                  .from_pitch = copy.row_bytes,
                                                  .to_pitch = copy.to_pitch});
    row += rows;
  }
  return status;
}

// What is in a block that is loaded, and neither loaded nor pulled, nothing
// writes: it is as the first time has left it.
absl::Status ReplayMember::Poison() {
  absl::Status status;
  for (const Block& block : blocks_) {
    if (!block.is_loaded) status.Update(FillRun(block.memory, block.bytes));
  }
  for (const BlockCopy& copy : pulled_) status.Update(Fill(copy));
  status.Update(memory_->Wait().status());
  return status;
}

int64_t ReplayMember::pulled_bytes() const {
  int64_t bytes = 0;
  for (const BlockCopy& copy : pulled_) bytes += copy.rows * copy.row_bytes;
  return bytes;
}

int64_t ReplayMember::allocated_bytes() const {
  int64_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.bytes;
  return bytes;
}

absl::StatusOr<std::byte*> ReplayMember::Allocate(int64_t bytes) {
  if (next_ == blocks_.size()) {
    absl::StatusOr<std::byte*> memory = memory_->Allocate(bytes);
    if (!memory.ok()) return memory;
    blocks_.push_back({*memory, bytes});
  }
  const Block& block = blocks_[next_++];
  if (block.bytes != bytes) {
    return absl::InternalError("a run asks for memory that no other had");
  }
  return block.memory;
}

absl::Status ReplayMember::Upload(const BlockCopy& copy) {
  if (loads_are_kept_) return absl::OkStatus();
  for (Block& block : blocks_) {
    if (copy.to >= block.memory && copy.to < block.memory + block.bytes) {
      block.is_loaded = true;
    }
  }
  return work_->Upload(copy);
}

absl::Status ReplayMember::Pull(MemberStream& peer, const BlockCopy& copy) {
  pulled_.push_back(copy);
  return work_->Pull(*static_cast<ReplayMember&>(peer).work_, copy);
}

absl::Status ReplayMember::PullAll(MemberStream& peer,
                                   absl::Span<const BlockCopy> copies) {
  pulled_.insert(pulled_.end(), copies.begin(), copies.end());
  return work_->PullAll(*static_cast<ReplayMember&>(peer).work_, copies);
}

absl::Status ReplayMember::Download(const BlockCopy& copy) {
  return work_->Download(copy);
}

absl::Status ReplayMember::Forward(absl::Span<const ForwardArgs> group,
                                   const GroupOptions& options) {
  return work_->Forward(group, options);
}

absl::Status ReplayMember::Backward(absl::Span<const BackwardArgs> group,
                                    const GroupOptions& options) {
  return work_->Backward(group, options);
}

absl::Status ReplayMember::Sum(const BlockSum& sum) { return work_->Sum(sum); }
absl::Status ReplayMember::Dot(const RowDots& dots) { return work_->Dot(dots); }

absl::Status ReplayMember::Record(Queue queue, int point) {
  return work_->Record(queue, point);
}

absl::Status ReplayMember::Await(Queue queue, MemberStream& of, int point) {
  return work_->Await(queue, *static_cast<ReplayMember&>(of).work_, point);
}

bool ReplayMember::Reaches(MemberStream& peer) {
  return work_->Reaches(*static_cast<ReplayMember&>(peer).work_);
}

absl::StatusOr<PhaseTimes> ReplayMember::Wait() { return work_->Wait(); }

void ReplayMember::Reset() {
  work_->Reset();
  next_ = 0;
  pulled_.clear();
}

}  // namespace attnd::bench
