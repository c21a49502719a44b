#ifndef ATTND_KERNELS_TEAM_TEAM_STREAM_H_
#define ATTND_KERNELS_TEAM_TEAM_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/backend.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"
#include "kernels/team/crew.h"
#include "kernels/team/host_tensors.h"
#include "kernels/team/member_stream.h"

namespace attnd {

// Which of a team's devices work. Thread-safe.
class Members {
 public:
  Members(std::vector<Backend*> all, const DeviceRates& rates)
      : all_(std::move(all)), rates_(rates), faults_(all_.size()) {}

  int size() const { return static_cast<int>(all_.size()); }
  Backend& at(int member) const { return *all_[member]; }
  // Of each.
  const DeviceRates& rates() const { return rates_; }
  // "cuda:1"
  std::string NameOf(int member) const;

  // `member` has broken, and is not used any more.
  void TakeOut(int member, const absl::Status& why);
  std::vector<int> InService() const;
  // What has been taken out, and why: "; without cuda:1 (...)". Else empty.
  std::string Missing() const;

 private:
  const std::vector<Backend*> all_;
  const DeviceRates rates_;
  mutable Mutex mutex_;
  std::vector<absl::Status> faults_ ABSL_GUARDED_BY(mutex_);
};

// See team.h. For one thread at a time.
class TeamStream : public Stream {
 public:
  // `members` outlive it.
  static absl::StatusOr<std::unique_ptr<TeamStream>> Create(Members& members);
  ~TeamStream() override;

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override;
  absl::StatusOr<std::byte*> MapOutput(HostSpan host) override;
  absl::Status Upload(absl::Span<const ConstHostSpan> from,
                      std::byte* to) override;
  absl::Status UploadPinned(ConstHostSpan from, std::byte* to) override;
  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override;
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override;
  absl::Status Download(const std::byte* from, HostSpan to) override;
  absl::Status Use(std::shared_ptr<DeviceBuffer> buffer) override;
  absl::StatusOr<int> Mark() override;
  absl::Status WaitFor(int mark) override;
  absl::StatusOr<PhaseTimes> Wait() override;
  const PlanReport* plan_report() const override;
  void Reset() override;

 private:
  // One Forward or Backward since the last Reset.
  struct Job {
    Op op = Op::kForward;
    Group group;
    GroupOptions options;
    // What it ran as.
    plan::PlanRequest request;
    plan::Plan plan;
    std::vector<int> members;
  };
  struct HostBlock {
    std::byte* memory;
    int64_t bytes;
  };

  explicit TeamStream(Members& members);

  // Runs a new job, over as many members as have not broken.
  absl::Status Begin(Job job);
  // Runs it once. An error: members that broke have been taken out, and what
  // they and others had has been lost, unless it is RESOURCE_EXHAUSTED.
  absl::Status RunOnce(Job& job);
  // Until members have done what they were given: the first error, of a member
  // that then has been taken out.
  absl::Status Drain();
  // Until all jobs are over, which run anew as long as members break.
  absl::Status Finish();
  absl::Status RunAllAnew(absl::Status why);
  void ResetMembers();
  // What the job's devices pulled through the host's memory: "; cuda:1 reaches
  // cuda:0 ...". Else empty.
  std::string Detours(const Job& job) const;
  // Why the last job ran as it did.
  std::string Why() const;
  void WriteReport();

  Members& members_;
  const std::shared_ptr<HostMemory> host_memory_;
  // By member; null once it has broken.
  std::vector<std::unique_ptr<MemberStream>> streams_;
  Crew crew_;
  std::vector<HostBlock> blocks_;
  std::vector<std::shared_ptr<DeviceBuffer>> buffers_;
  std::vector<Job> jobs_;
  int points_ = 0;       // of the streams since their Reset
  bool drained_ = true;  // nothing has been run since the members were drained
  std::vector<PhaseTimes> times_;  // by member, since the last Wait
  PlanReport report_;
  int marks_ = 0;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_TEAM_STREAM_H_
