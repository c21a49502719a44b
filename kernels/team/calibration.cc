#include "kernels/team/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/plan_request.h"
#include "kernels/plan/predict.h"
#include "kernels/team/member_stream.h"

namespace attnd {
namespace {

// Large enough to tell a link's speed, and small enough to be had at once.
constexpr int64_t kCopyBytes = int64_t{8} << 20;
// Each measurement is the best of so many, after one that does not count. They
// take turns, so that those of one lie as far apart as they can: other users of
// the host disturb a few milliseconds in a row.
constexpr int kTurns = 12;
// Copies or launches of one measurement, so that what surrounds them counts for
// little.
constexpr int kInARow = 4;
// A GPU that begins to compute is so much faster than one that has computed for
// a while and is at its limit of power.
constexpr double kAtFirst = 1.2;

// Self-attention over zeros: Q, K and V are the same kCopyBytes.
constexpr int64_t kTokens = 4096, kHeads = 8, kDim = 128;
static_assert(kTokens * kHeads * kDim * 2 == kCopyBytes);

// How much faster than expected: not at all within a third, as clocks and links
// differ by that from one start to the next, and else in eighths, and within
// what is likely.
double Factor(double measured, double expected) {
  const double factor = measured / expected;
  if (factor > 3.0 / 4 && factor < 4.0 / 3) return 1;
  return std::clamp(std::round(8 * factor), 1.0, 64.0) / 8;
}

class Calibrator {
 public:
  explicit Calibrator(const std::vector<Backend*>& members)
      : members_(members), host_memory_(members.front()->host_memory()) {}
  Calibrator(const Calibrator&) = delete;
  Calibrator& operator=(const Calibrator&) = delete;
  ~Calibrator() {
    for (const auto& stream : streams_) {
      stream->Wait().status().IgnoreError();
    }
    if (host_ != nullptr) host_memory_->Free(host_, kCopyBytes);
  }

  absl::Status Correct(DeviceRates& rates) {
    absl::Status status = Begin();
    // Uploads first, which leave zeros for the kernels.
    double upload = kNotYet, pull = kNotYet, forward = kNotYet;
    for (int turn = 0; turn <= kTurns && status.ok(); ++turn) {
      status.Update(
          Time(turn, upload, [this](size_t member) { return Upload(member); }));
      status.Update(
          Time(turn, pull, [this](size_t member) { return Pull(member); }));
      status.Update(Time(turn, forward,
                         [this](size_t member) { return Forward(member); }));
    }
    if (!status.ok()) return status;
    const double factor =
        Factor(kInARow * ForwardSeconds(rates), kAtFirst * forward);
    for (DeviceRates::Kernel* kernel : {&rates.forward, &rates.backward}) {
      kernel->flops *= factor;
      kernel->tile_seconds /= factor;
    }
    CorrectLink(upload, rates.upload);
    CorrectLink(pull, rates.pull);
    rates.download.bytes = rates.upload.bytes;
    return absl::OkStatus();
  }

 private:
  using Act = absl::FunctionRef<absl::Status(size_t member)>;

  static constexpr double kNotYet = std::numeric_limits<double>::infinity();

  absl::Status Begin() {
    host_ = host_memory_->Allocate(kCopyBytes);
    if (host_ == nullptr) return absl::ResourceExhaustedError("host memory");
    std::memset(host_, 0, kCopyBytes);
    for (Backend* member : members_) {
      absl::StatusOr<std::unique_ptr<MemberStream>> stream =
          member->NewMemberStream();
      if (!stream.ok()) return stream.status();
      streams_.push_back(*std::move(stream));
      for (std::vector<std::byte*>* all : {&memory_, &results_}) {
        const absl::StatusOr<std::byte*> memory =
            streams_.back()->Allocate(kCopyBytes);
        if (!memory.ok()) return memory.status();
        all->push_back(*memory);
      }
    }
    return absl::OkStatus();
  }

  // Seconds of kInARow times `act`, on all members at once, if they are the
  // least so far and this turn counts.
  absl::Status Time(int turn, double& least, Act act) {
    const absl::Time start = MonotonicNow();
    absl::Status status;
    for (size_t i = 0; i < streams_.size(); ++i) {
      for (int time = 0; time < kInARow; ++time) status.Update(act(i));
    }
    for (const auto& stream : streams_) {
      status.Update(stream->Wait().status());
    }
    const double seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
    if (turn > 0) least = std::min(least, seconds);
    return status;
  }

  absl::Status Upload(size_t member) {
    BlockCopy upload = {.row_bytes = kCopyBytes};
    upload.from = host_;
    upload.to = memory_[member];
    return streams_[member]->Upload(upload);
  }

  absl::Status Pull(size_t member) {
    const size_t peer = (member + 1) % streams_.size();
    BlockCopy pull = {.row_bytes = kCopyBytes};
    pull.from = memory_[peer];
    pull.to = results_[member];
    return streams_[member]->Pull(*streams_[peer], pull);
  }

  absl::Status Forward(size_t member) {
    KvSegment segment;
    ForwardArgs args;
    args.problem = Attention(segment);
    Place(memory_[member], args.problem.q);
    segment.k = segment.v = args.problem.q;
    Place(results_[member], args.o);
    return streams_[member]->Forward({&args, 1}, {});
  }

  static void Place(std::byte* data, auto& view) {
    view = {data, DType::kBF16, kTokens * kHeads * kDim, kHeads * kDim, kDim};
  }

  // Without its data.
  static Problem Attention(KvSegment& segment) {
    Problem problem;
    problem.batch = 1;
    problem.q_len = segment.len = kTokens;
    problem.q_heads = problem.kv_heads = kHeads;
    problem.head_dim = problem.value_dim = kDim;
    problem.scale = 1;
    problem.kv = {&segment, 1};
    problem.q.dtype = DType::kBF16;
    return problem;
  }

  // What one of the launches in a row should take: they are enqueued while
  // others run.
  double ForwardSeconds(const DeviceRates& rates) const {
    KvSegment segment;
    const Problem problem = Attention(segment);
    const Problem* const problems[] = {&problem};
    plan::PlanRequest request = plan::DescribeShapes(
        Op::kForward, problems, {.plan = PlanKind::kHeads}, *members_.front());
    request.inputs = plan::InputsLie::kWherePlanned;
    request.rates = rates;
    request.rates.team_seconds = request.rates.step_seconds = 0;
    request.rates.forward.launch_seconds = 0;
    request.rates.forward.enqueue_seconds = 0;
    return absl::ToDoubleSeconds(
        plan::Predict(request, plan::MakePlan(request, 1)));
  }

  static void CorrectLink(double seconds, DeviceRates::Link& link) {
    const double expected =
        link.seconds + kInARow * (link.copy_seconds +
                                  static_cast<double>(kCopyBytes) / link.bytes);
    link.bytes *= Factor(expected, seconds);
  }

  const std::vector<Backend*>& members_;
  const std::shared_ptr<HostMemory> host_memory_;
  std::byte* host_ = nullptr;
  std::vector<std::unique_ptr<MemberStream>> streams_;
  std::vector<std::byte*> memory_, results_;  // by member
};

}  // namespace

DeviceRates Calibrate(const std::vector<Backend*>& members) {
  const DeviceRates expected = members.front()->Rates();
  if (members.size() < 2 || members.front()->device().shares_host_memory) {
    return expected;
  }
  DeviceRates rates = expected;
  return Calibrator(members).Correct(rates).ok() ? rates : expected;
}

}  // namespace attnd
