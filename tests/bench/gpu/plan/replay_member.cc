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
    status = Copy(poison_, to + at, std::min(bytes - at, kPoisonBytes));
  }
  return status;
}

absl::Status ReplayMember::KeepLoads() {
  absl::Status status;
  for (Block& block : blocks_) {
    if (!block.is_loaded) continue;
    absl::StatusOr<std::byte*> loaded = memory_->Allocate(block.bytes);
    if (!loaded.ok()) return loaded.status();
    block.loaded = *loaded;
    status.Update(Copy(block.memory, block.loaded, block.bytes));
  }
  status.Update(memory_->Wait().status());
  loads_are_kept_ = true;
  return status;
}

absl::Status ReplayMember::Copy(const std::byte* from, std::byte* to,
                                int64_t bytes) {
  return memory_->Pull(*memory_, {.from = from, .to = to, .row_bytes = bytes});
}

absl::Status ReplayMember::Poison() {
  absl::Status status;
  for (const Block& block : blocks_) {
    status.Update(block.loaded != nullptr
                      ? Copy(block.loaded, block.memory, block.bytes)
                      : FillRun(block.memory, block.bytes));
  }
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
absl::Status ReplayMember::Merge(const RowMerges& merges) {
  return work_->Merge(merges);
}

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
