#include "kernels/team/host_member.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "kernels/dtype.h"
#include "kernels/row_merge.h"

namespace attnd {
namespace {

// (E19), (E20) of one row of one head.
void MergeRow(const RowMerges& merges, int64_t row, int64_t head) {
  const auto lse = [&](const RowState& term) {
    return term.lse.data[head * term.lse.head_stride + row];
  };
  RowMerger merger;
  for (const RowState& term : merges.terms) merger.See(lse(term));
  for (const RowState& term : merges.terms) merger.Add(lse(term));
  if (merges.lse) {
    merges.lse.data[head * merges.lse.head_stride + row] = merger.lse();
  }
  if (!merges.o) return;
  double o[kMaxHeadDim];  // rounded once, however many terms there are
  std::fill_n(o, merges.dim, 0.0);
  for (const RowState& term : merges.terms) {
    if (lse(term) == RowMerger::kNothing) continue;
    const double weight = merger.Weight(lse(term));
    const float* from = static_cast<const float*>(term.o.data) +
                        row * term.o.token_stride + head * term.o.head_stride;
    for (int64_t d = 0; d < merges.dim; ++d) o[d] += weight * from[d];
  }
  const int64_t to = row * merges.o.token_stride + head * merges.o.head_stride;
  for (int64_t d = 0; d < merges.dim; ++d) {
    StoreElement(merges.o.data, merges.o.dtype, to + d, o[d]);
  }
}

class HostMember : public MemberStream {
 public:
  explicit HostMember(std::unique_ptr<Stream> stream)
      : stream_(std::move(stream)) {}

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    return stream_->Allocate(bytes);
  }

  absl::Status Upload(const BlockCopy& copy) override {
    return Copy(copy, times_.upload);
  }
  absl::Status Pull(MemberStream&, const BlockCopy& copy) override {
    return Copy(copy, times_.compute);
  }
  absl::Status Download(const BlockCopy& copy) override {
    return Copy(copy, times_.download);
  }

  absl::Status Forward(absl::Span<const ForwardArgs> group,
                       const GroupOptions& options) override {
    return ToItsEnd(stream_->Forward(group, options));
  }
  absl::Status Backward(absl::Span<const BackwardArgs> group,
                        const GroupOptions& options) override {
    return ToItsEnd(stream_->Backward(group, options));
  }

  absl::Status Sum(const BlockSum& sum) override {
    for (int64_t row = 0; row < sum.rows; ++row) {
      for (int64_t i = 0; i < sum.row_elements; ++i) {
        float total = 0;
        for (size_t t = 0; t < sum.terms.size(); ++t) {
          const BlockSum::Term& term = sum.terms[t];
          const float value = term.data[row * term.pitch + i];
          total = t == 0 ? value : total + value;
        }
        StoreElement(sum.to, sum.dtype, row * sum.to_pitch + i, total);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Dot(const RowDots& dots) override {
    const auto at = [](const ConstTensorView& t, int64_t row, int64_t head,
                       int64_t d) {
      return LoadElement(t.data, t.dtype,
                         row * t.token_stride + head * t.head_stride + d);
    };
    for (int64_t head = 0; head < dots.heads; ++head) {
      for (int64_t row = 0; row < dots.rows; ++row) {
        float sum = 0;
        for (int64_t d = 0; d < dots.dim; ++d) {
          sum += at(dots.a, row, head, d) * at(dots.b, row, head, d);
        }
        dots.to.data[head * dots.to.head_stride + row] = sum;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Merge(const RowMerges& merges) override {
    for (int64_t head = 0; head < merges.heads; ++head) {
      for (int64_t row = 0; row < merges.rows; ++row) {
        MergeRow(merges, row, head);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Record(Queue, int) override { return absl::OkStatus(); }
  absl::Status Await(Queue, MemberStream&, int) override {
    return absl::OkStatus();
  }

  absl::StatusOr<PhaseTimes> Wait() override {
    absl::StatusOr<PhaseTimes> times = stream_->Wait();
    if (!times.ok()) return times;
    times->upload += times_.upload;
    times->compute += times_.compute;
    times->download += times_.download;
    times_ = {};
    return times;
  }
  void Reset() override { stream_->Reset(); }

 private:
  static absl::Status Copy(const BlockCopy& copy, absl::Duration& time) {
    const absl::Time start = MonotonicNow();
    for (int64_t row = 0; row < copy.rows; ++row) {
      std::memcpy(copy.to + row * copy.to_pitch,
                  copy.from + row * copy.from_pitch, copy.row_bytes);
    }
    time += MonotonicNow() - start;
    return absl::OkStatus();
  }

  absl::Status ToItsEnd(absl::Status begun) {
    if (!begun.ok()) return begun;
    return stream_->Proceed([] { return false; }).status();
  }

  const std::unique_ptr<Stream> stream_;
  PhaseTimes times_;  // of what is done here
};

}  // namespace

std::unique_ptr<MemberStream> NewHostMember(std::unique_ptr<Stream> stream) {
  return std::make_unique<HostMember>(std::move(stream));
}

}  // namespace attnd
