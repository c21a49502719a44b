#ifndef ATTND_TESTS_BENCH_GPU_PLAN_REPLAY_MEMBER_H_
#define ATTND_TESTS_BENCH_GPU_PLAN_REPLAY_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/team/member_stream.h"

namespace attnd::bench {

// A member for one plan that runs over and over. Every run has the memory of
// the first, and finds in it what that one has uploaded:
//
//   run 1     Allocate, Poison, Upload, KeepLoads
//   run 2, …  Poison, Reset, Allocate, compute
//
// PlanRun is none the wiser: it allocates and uploads each time. Poison writes
// 0xFF, which is NaN in every type, wherever no upload has written, so that a
// result which rests on something that this run has not computed or fetched is
// NaN. Where one has, it writes again what that has left, as a plan may use the
// memory for something else later. Pulls are counted as they come.
class ReplayMember : public MemberStream {
 public:
  static absl::StatusOr<std::unique_ptr<ReplayMember>> Create(Backend& backend);
  ~ReplayMember() override;

  // Copies what is loaded; from now on Upload does nothing.
  absl::Status KeepLoads();
  // All memory. Returns when it has happened; nothing else may be under way
  // here.
  absl::Status Poison();
  // Bytes pulled since the last Reset, and copies that pulled them.
  int64_t pulled_bytes() const;
  int64_t pulls() const { return static_cast<int64_t>(pulled_.size()); }
  // Of all memory that a run has asked for.
  int64_t allocated_bytes() const;

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override;
  absl::Status Upload(const BlockCopy& copy) override;
  absl::Status Pull(MemberStream& peer, const BlockCopy& copy) override;
  absl::Status PullAll(MemberStream& peer,
                       absl::Span<const BlockCopy> copies) override;
  absl::Status Download(const BlockCopy& copy) override;
  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override;
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override;
  absl::Status Sum(const BlockSum& sum) override;
  absl::Status Dot(const RowDots& dots) override;
  absl::Status Merge(const RowMerges& merges) override;
  absl::Status Record(Queue queue, int point) override;
  absl::Status Await(Queue queue, MemberStream& of, int point) override;
  bool Reaches(MemberStream& peer) override;
  absl::StatusOr<PhaseTimes> Wait() override;
  // Memory stays, and is given out anew from the first on.
  void Reset() override;

 private:
  struct Block {
    std::byte* memory = nullptr;
    int64_t bytes = 0;
    bool is_loaded = false;       // some of it
    std::byte* loaded = nullptr;  // what it had in it then
  };

  ReplayMember(std::shared_ptr<HostMemory> host_memory,
               std::unique_ptr<MemberStream> memory,
               std::unique_ptr<MemberStream> work)
      : host_memory_(std::move(host_memory)),
        memory_(std::move(memory)),
        work_(std::move(work)) {}

  absl::Status MakePoison();
  // On the device.
  absl::Status Copy(const std::byte* from, std::byte* to, int64_t bytes);
  absl::Status FillRun(std::byte* to, int64_t bytes);

  const std::shared_ptr<HostMemory> host_memory_;
  // Never reset: has the memory. Fills it, too, so that `work_` has done
  // nothing when a run begins.
  const std::unique_ptr<MemberStream> memory_;
  const std::unique_ptr<MemberStream> work_;
  std::byte* host_poison_ = nullptr;
  std::byte* poison_ = nullptr;
  std::vector<Block> blocks_;
  size_t next_ = 0;  // of the blocks, in this run
  bool loads_are_kept_ = false;
  std::vector<BlockCopy> pulled_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PLAN_REPLAY_MEMBER_H_
