#include "tests/bench/study/ring/partials.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "base/float16.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/ring_places.h"
#include "kernels/row_merge.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

using plan::Run;

// Tokens of one tensor [tokens, heads, dim], as a kernel leaves them.
class Block {
 public:
  Block(const Shape& shape, int64_t tokens, DType dtype)
      : shape_(shape), dtype_(dtype) {
    const int64_t elements = tokens * shape.q_heads * shape.dim;
    bytes_.resize(elements * SizeOf(dtype));
  }
  TensorView view() {
    return {bytes_.data(), dtype_, 0, shape_.q_heads * shape_.dim, shape_.dim};
  }
  float at(int64_t i) const {
    return dtype_ == DType::kF32
               ? reinterpret_cast<const float*>(bytes_.data())[i]
               : BF16ToFloat(
                     reinterpret_cast<const uint16_t*>(bytes_.data())[i]);
  }

 private:
  const Shape shape_;
  const DType dtype_;
  std::vector<std::byte> bytes_;
};

class Partials {
 public:
  Partials(Stream& stream, const Shape& shape, int devices, DType partial,
           const HostTensors& tensors)
      : stream_(stream),
        shape_(shape),
        devices_(devices),
        partial_(partial),
        tensors_(tensors),
        token_(shape.q_heads * shape.dim) {
    for (const plan::Runs& runs : plan::CutEvenly(shape.len, devices, {})) {
      blocks_.push_back(runs.empty() ? Run{} : runs[0]);
    }
  }

  void Forward() {
    for (int device = 0; device < devices_; ++device) ForwardOf(device);
  }

  void Backward() {
    dq_.assign(shape_.elements(), 0);
    dk_ = dv_ = dq_;
    for (int device = 0; device < devices_; ++device) {
      ForBlocks(device, [&](const Run& rows, const Run& columns) {
        BackwardOver(rows, columns);
      });
    }
    Round(dq_, 0, tensors_.got().dq);
    Round(dk_, 0, tensors_.got().dk);
    Round(dv_, 0, tensors_.got().dv);
  }

 private:
  // Calls work(rows, columns) for the blocks of which the device's rows see
  // anything, in the order in which they come by.
  template <class Work>
  void ForBlocks(int device, Work work) {
    const Run& rows = blocks_[device];
    for (int step = 0; step < devices_; ++step) {
      const Run& columns = blocks_[plan::BlockAt(device, step, devices_)];
      if (rows.empty() || columns.empty()) continue;
      if (shape_.causal && columns.first > rows.first) continue;
      work(rows, columns);
    }
  }

  // bf16 from token `first` on.
  ConstTensorView View(const std::byte* data, int64_t first) const {
    return {data + 2 * first * token_, DType::kBF16, 0, token_, shape_.dim};
  }
  ConstRowView ReferenceLse(const Run& rows) const {
    return {
        reinterpret_cast<const float*>(tensors_.reference().lse) + rows.first,
        0, shape_.len};
  }

  Problem ProblemOf(const Run& rows, const Run& columns, KvSegment& segment) {
    segment.k = View(tensors_.k(), columns.first);
    segment.v = View(tensors_.v(), columns.first);
    segment.len = columns.count;
    segment.positions.start = columns.first;
    Problem problem;
    problem.batch = 1;
    problem.q_len = rows.count;
    problem.q_heads = problem.kv_heads = shape_.q_heads;
    problem.head_dim = problem.value_dim = shape_.dim;
    problem.q = View(tensors_.q(), rows.first);
    problem.kv = {&segment, 1};
    problem.q_start = rows.first;
    problem.mask.causal = shape_.causal;
    problem.scale = 1 / std::sqrt(static_cast<float>(shape_.dim));
    return problem;
  }

  void Finish(absl::Status status) {
    if (status.ok()) {
      status = stream_.Proceed([] { return false; }).status();
    }
    Require(status);
    Require(stream_.Wait().status());
    stream_.Reset();
  }

  void ForwardOf(int device) {
    const Run& rows = blocks_[device];
    std::vector<float> o(rows.count * token_, 0);
    std::vector<float> lse(rows.count * shape_.q_heads,
                           -std::numeric_limits<float>::infinity());
    ForBlocks(device, [&](const Run&, const Run& columns) {
      MergeOver(rows, columns, o, lse);
    });
    Round(o, rows.first, tensors_.got().o);
    auto* const to = reinterpret_cast<float*>(tensors_.got().lse);
    for (int64_t head = 0; head < shape_.q_heads; ++head) {
      std::copy_n(lse.begin() + head * rows.count, rows.count,
                  to + head * shape_.len + rows.first);
    }
  }

  // The rows' O and LSE over the columns, put to what they have so far.
  void MergeOver(const Run& rows, const Run& columns, std::vector<float>& o,
                 std::vector<float>& lse) {
    KvSegment segment;
    Block partial(shape_, rows.count, partial_);
    std::vector<float> partial_lse(lse.size());
    ForwardArgs args;
    args.problem = ProblemOf(rows, columns, segment);
    args.o = partial.view();
    args.lse = {partial_lse.data(), 0, rows.count};
    Finish(stream_.Forward({&args, 1}, {}));
    for (int64_t row = 0; row < rows.count; ++row) {
      for (int64_t head = 0; head < shape_.q_heads; ++head) {
        const int64_t at = head * rows.count + row;
        const RowMerge merge = MergeRow(partial_lse[at], lse[at]);
        lse[at] = merge.lse;
        const int64_t first = row * token_ + head * shape_.dim;
        for (int64_t i = first; i < first + shape_.dim; ++i) {
          o[i] = merge.weight * partial.at(i) + merge.weight_before * o[i];
        }
      }
    }
  }

  void BackwardOver(const Run& rows, const Run& columns) {
    KvSegment segment;
    Block dq(shape_, rows.count, partial_);
    Block dk(shape_, columns.count, partial_);
    Block dv(shape_, columns.count, partial_);
    BackwardArgs args;
    args.problem = ProblemOf(rows, columns, segment);
    segment.dk = dk.view();
    segment.dv = dv.view();
    args.d_o = View(tensors_.d_o(), rows.first);
    args.o = View(tensors_.reference().o, rows.first);
    args.lse = ReferenceLse(rows);
    args.dq = dq.view();
    Finish(stream_.Backward({&args, 1}, {.deterministic = true}));
    Add(dq, rows, dq_);
    Add(dk, columns, dk_);
    Add(dv, columns, dv_);
  }

  void Add(const Block& block, const Run& tokens, std::vector<float>& to) {
    const int64_t first = tokens.first * token_;
    for (int64_t i = 0; i < tokens.count * token_; ++i) {
      to[first + i] += block.at(i);
    }
  }

  void Round(const std::vector<float>& from, int64_t first, std::byte* to) {
    auto* const rounded = reinterpret_cast<uint16_t*>(to) + first * token_;
    for (size_t i = 0; i < from.size(); ++i) rounded[i] = FloatToBF16(from[i]);
  }

  Stream& stream_;
  const Shape shape_;
  const int devices_;
  const DType partial_;
  const HostTensors& tensors_;
  const int64_t token_;  // elements of one
  std::vector<Run> blocks_;
  std::vector<float> dq_, dk_, dv_;
};

}  // namespace

void ForwardOfPartials(Stream& stream, const Shape& shape, int devices,
                       DType partial, const HostTensors& tensors) {
  Partials(stream, shape, devices, partial, tensors).Forward();
}

void BackwardOfPartials(Stream& stream, const Shape& shape, int devices,
                        DType partial, const HostTensors& tensors) {
  Partials(stream, shape, devices, partial, tensors).Backward();
}

}  // namespace attnd::bench
