#include "tests/kernels/cuda/fake_member.h"

#include <utility>

#include "kernels/cuda/backward.h"
#include "kernels/cuda/forward.h"
#include "kernels/dtype.h"
#include "kernels/row_merge.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd {

testing::FakeKernels& testing::TheFakeKernels() {
  static FakeKernels kernels;
  return kernels;
}

namespace cuda {
namespace {

using testing::TheFakeKernels;

class FakeRest : public Rest {
 public:
  explicit FakeRest(Workspace& workspace) : workspace_(workspace) {}

  absl::Status EnqueueSlice() override {
    const auto scratch = workspace_.Scratch(TheFakeKernels().scratch);
    if (!scratch.ok()) return scratch.status();
    if (TheFakeKernels().faults) {
      testing::BreakFakeDevice(workspace_.stream(), cudaErrorIllegalAddress);
    }
    testing::EnqueueFake(workspace_.stream(),
                         [] { ++TheFakeKernels().slices_over; });
    ++enqueued_;
    return absl::OkStatus();
  }
  double share() const override {
    return static_cast<double>(enqueued_) / slices_;
  }

 private:
  Workspace& workspace_;
  const int slices_ = TheFakeKernels().slices;
  int enqueued_ = 0;
};

void FakeMerge(const MergeParams& p, int64_t row, int64_t head) {
  RowMerger merger;
  const auto lse = [&](int term) {
    return p.terms[term].lse[head * p.terms[term].lse_head_stride + row];
  };
  for (int t = 0; t < p.num_terms; ++t) merger.See(lse(t));
  for (int t = 0; t < p.num_terms; ++t) merger.Add(lse(t));
  if (p.lse) p.lse.data[head * p.lse.head_stride + row] = merger.lse();
  for (int d = 0; p.o && d < p.dim; ++d) {
    double sum = 0;
    for (int t = 0; t < p.num_terms; ++t) {
      if (lse(t) == RowMerger::kNothing) continue;
      const MergeParams::Term& term = p.terms[t];
      sum += merger.Weight(lse(t)) *
             term.o[row * term.token_stride + head * term.head_stride + d];
    }
    StoreElement(p.o.data, p.o.dtype,
                 row * p.o.token_stride + head * p.o.head_stride + d, sum);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rest>> BeginForward(
    absl::Span<const ForwardArgs>, Algorithm, const Gpu&, Workspace& workspace,
    const SliceOptions&) {
  return BeginRest(std::make_unique<FakeRest>(workspace));
}

absl::StatusOr<std::unique_ptr<Rest>> BeginBackward(
    absl::Span<const BackwardArgs>, const GroupOptions&, const Gpu&,
    Workspace& workspace, const SliceOptions&) {
  return BeginRest(std::make_unique<FakeRest>(workspace));
}

cudaError_t LaunchSum(const SumParams& params, DType, bool aligned,
                      cudaStream_t stream) {
  TheFakeKernels().last_sum = params;
  TheFakeKernels().last_aligned = aligned;
  testing::EnqueueFake(stream, [p = params] {
    auto* to = static_cast<float*>(p.to);
    for (int64_t row = 0; row < p.rows; ++row) {
      for (int64_t i = 0; i < p.row_elements; ++i) {
        float sum = 0;
        for (int t = 0; t < p.num_terms; ++t) {
          sum += p.terms[t].data[row * p.terms[t].pitch + i];
        }
        to[row * p.to_pitch + i] = sum;
      }
    }
  });
  return cudaSuccess;
}

cudaError_t LaunchDot(const DotParams&, cudaStream_t) { return cudaSuccess; }

cudaError_t LaunchMerge(const MergeParams& params, bool aligned,
                        cudaStream_t stream) {
  TheFakeKernels().last_merge = params;
  TheFakeKernels().last_aligned = aligned;
  testing::EnqueueFake(stream, [p = params] {
    for (int64_t head = 0; head < p.heads; ++head) {
      for (int64_t row = 0; row < p.rows; ++row) FakeMerge(p, row, head);
    }
  });
  return cudaSuccess;
}

}  // namespace cuda
}  // namespace attnd
