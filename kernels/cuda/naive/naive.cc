#include "kernels/cuda/naive/naive.h"

#include <algorithm>
#include <functional>

#include "kernels/cuda/baseline.h"
#include "kernels/cuda/naive/cublas.h"
#include "kernels/cuda/naive/product.h"
#include "kernels/cuda/naive/steps.h"
#include "kernels/cuda/status.h"

namespace attnd::cuda {
namespace {

// Every matrix starts at, and every row of P is, a multiple of 16 bytes.
constexpr int64_t kPitchElements = 8;

int64_t RoundUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

// A narrow O cannot be summed over segments in place.
bool NeedsWideOutput(const Problem& p) {
  return p.dtype() != DType::kF32 && p.kv.size() > 1;
}

// Cuts `scratch` into the problem's matrices.
NaiveMatrices Place(const ForwardArgs& args, BlobOffset problem,
                    std::byte* scratch) {
  const Problem& p = args.problem;
  NaiveMatrices x;
  x.rows = p.batch * p.q_heads * p.q_len;
  x.columns = PaddedKvLen(p);
  x.pitch = RoundUp(x.columns, kPitchElements);
  x.dtype = p.dtype();
  x.problem = problem;
  const int64_t elements = x.rows * x.pitch;
  const auto take = [&scratch](int64_t bytes) {
    std::byte* at = scratch;
    scratch += RoundUp(bytes, kTensorAlignment);
    return at;
  };
  x.s = reinterpret_cast<float*>(take(elements * 4));
  x.p = take(elements * SizeOf(x.dtype));
  x.m = reinterpret_cast<float*>(take(x.rows * 4));
  x.l = reinterpret_cast<float*>(take(x.rows * 4));
  if (NeedsWideOutput(p) && args.o && args.o.dtype != DType::kF32)
    x.o = reinterpret_cast<float*>(take(x.rows * p.value_dim * 4));
  return x;
}

// The sequences [first, last) of a problem, all of the same lengths.
struct Sequences {
  int64_t first, last;
};

// The two products of some sequences with one segment.
class SegmentProducts {
 public:
  SegmentProducts(const ForwardArgs& args, const NaiveMatrices& x,
                  Sequences sequences)
      : args_(args), p_(args.problem), x_(x), sequences_(sequences) {}

  // S = Q K^T at the columns from `column` on.
  Product Scores(const KvSegment& segment, int64_t column) const {
    Product product = Sized(QLen(p_, b()), KvLen(segment, b()), p_.head_dim);
    Place(p_.q, product.a, product.lda, &Repeat::a, p_.group(), product);
    Place(segment.k, product.b, product.ldb, &Repeat::b, 0, product);
    product.b_transposed = true;
    product.c = x_.s + Row() * x_.pitch + column;
    product.ldc = x_.pitch;
    PlaceRows(x_.pitch, &Repeat::c, product);
    return product;
  }

  // O = P V with the columns from `column` on, or O += P V.
  Product Output(const KvSegment& segment, int64_t column,
                 bool accumulate) const {
    Product product = Sized(QLen(p_, b()), p_.value_dim, KvLen(segment, b()));
    const int64_t at = Row() * x_.pitch + column;
    product.a = static_cast<const std::byte*>(x_.p) + at * SizeOf(x_.dtype);
    product.lda = x_.pitch;
    PlaceRows(x_.pitch, &Repeat::a, product);
    Place(segment.v, product.b, product.ldb, &Repeat::b, 0, product);
    product.accumulate = accumulate;
    if (x_.o != nullptr) {
      product.c = x_.o + Row() * p_.value_dim;
      product.ldc = p_.value_dim;
      PlaceRows(p_.value_dim, &Repeat::c, product);
    } else {
      Place(args_.o, product.c, product.ldc, &Repeat::c, p_.group(), product);
      product.c_dtype = args_.o.dtype;
    }
    return product;
  }

 private:
  int64_t b() const { return sequences_.first; }
  int64_t Row() const { return b() * p_.q_heads * p_.q_len; }

  // Repeated for the sequences, the K/V heads, and the q heads of each.
  Product Sized(int64_t m, int64_t n, int64_t k) const {
    Product product;
    product.dtype = p_.dtype();
    product.m = m;
    product.n = n;
    product.k = k;
    product.repeats[0].count = sequences_.last - sequences_.first;
    product.repeats[1].count = p_.kv_heads;
    product.repeats[2].count = p_.group();
    return product;
  }

  // A tensor with `heads` of a K/V head side by side; 0: the K/V head itself.
  template <class Void, class Data>
  void Place(const BasicTensorView<Void>& tensor, Data& data, int64_t& ld,
             int64_t Repeat::*stride, int64_t heads, Product& product) const {
    using Byte =
        std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    data = static_cast<Byte*>(tensor.data) +
           b() * tensor.batch_stride * SizeOf(tensor.dtype);
    ld = tensor.token_stride;
    product.repeats[0].*stride = tensor.batch_stride;
    product.repeats[1].*stride =
        std::max<int64_t>(heads, 1) * tensor.head_stride;
    product.repeats[2].*stride = heads == 0 ? 0 : tensor.head_stride;
  }

  // A matrix of ours, [batch, q_heads, q_len] rows.
  void PlaceRows(int64_t pitch, int64_t Repeat::*stride,
                 Product& product) const {
    product.repeats[2].*stride = p_.q_len * pitch;
    product.repeats[1].*stride = p_.group() * p_.q_len * pitch;
    product.repeats[0].*stride = p_.q_heads * p_.q_len * pitch;
  }

  const ForwardArgs& args_;
  const Problem& p_;
  const NaiveMatrices& x_;
  const Sequences sequences_;
};

// One problem's launches.
class Run {
 public:
  Run(const ForwardArgs& args, const LaunchParams& params,
      const NaiveMatrices& x, Cublas* cublas, cudaStream_t stream,
      LaunchCounts& counts)
      : args_(args),
        p_(args.problem),
        params_(params),
        x_(x),
        cublas_(cublas),
        stream_(stream),
        counts_(counts) {}

  // Stops early, and is OK, once the problem is cancelled.
  absl::Status All() {
    absl::Status status = Products(/*output=*/false);
    for (NaiveStep step :
         {NaiveStep::kScale, NaiveStep::kRowMax, NaiveStep::kSubtract,
          NaiveStep::kExp, NaiveStep::kRowSum, NaiveStep::kDivide}) {
      if (!status.ok() || Cancelled(p_)) return status;
      status = Launched(LaunchNaiveStep(step, params_, x_, stream_));
    }
    if (!args_.o) return status;
    if (status.ok()) status = Products(/*output=*/true);
    if (!status.ok() || Cancelled(p_) || !NeedsFinish()) return status;
    return Launched(LaunchFinishOutput(params_, x_, stream_));
  }

 private:
  absl::Status Launched(cudaError_t error) {
    ++counts_.kernels;
    return ToStatus(error, "a step of naive attention");
  }

  absl::Status Multiply(const Product& product) {
    if (cublas_ != nullptr && Cublas::Takes(product))
      return cublas_->Enqueue(product, counts_.kernels);
    return Launched(LaunchTiledProduct(Fold(product), stream_));
  }

  // Of all sequences: at once if their lengths are the same.
  absl::Status Products(bool output) {
    const bool ragged =
        !p_.q_lens.empty() ||
        std::any_of(p_.kv.begin(), p_.kv.end(),
                    [](const KvSegment& s) { return !s.lens.empty(); });
    const int64_t step = ragged ? 1 : p_.batch;
    for (int64_t b = 0; b < p_.batch; b += step) {
      absl::Status status = Products({b, b + step}, output);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Nothing past a sequence's own lengths is read.
  absl::Status Products(Sequences sequences, bool output) {
    const SegmentProducts products(args_, x_, sequences);
    if (QLen(p_, sequences.first) == 0) return absl::OkStatus();
    int64_t column = 0;
    bool accumulate = false;
    for (const KvSegment& segment : p_.kv) {
      if (Cancelled(p_)) return absl::OkStatus();
      if (KvLen(segment, sequences.first) > 0) {
        absl::Status status =
            Multiply(output ? products.Output(segment, column, accumulate)
                            : products.Scores(segment, column));
        if (!status.ok()) return status;
        accumulate = true;
      }
      column += segment.len;
    }
    return absl::OkStatus();
  }

  // Whether the products leave something of O to be written.
  bool NeedsFinish() const {
    if (x_.o != nullptr || !p_.q_lens.empty()) return true;
    for (int64_t b = 0; b < p_.batch; ++b)
      if (KvLen(p_, b) == 0) return true;
    return false;
  }

  const ForwardArgs& args_;
  const Problem& p_;
  const LaunchParams& params_;
  const NaiveMatrices& x_;
  Cublas* const cublas_;  // or null
  const cudaStream_t stream_;
  LaunchCounts& counts_;
};

}  // namespace

absl::StatusOr<LaunchCounts> EnqueueNaive(absl::Span<const ForwardArgs> group,
                                          Workspace& workspace,
                                          const NaiveOptions& options) {
  Cublas* cublas = nullptr;
  if (options.use_cublas && Cublas::IsPresent()) {
    absl::StatusOr<Cublas*> kept = Cublas::Of(workspace);
    if (!kept.ok()) return kept.status();
    cublas = *kept;
  }
  LaunchCounts counts;
  BaselineGroup placed;
  absl::Status status =
      PlaceBaselineGroup(group, NaiveScratchBytes, workspace, placed, counts);
  for (size_t n = 0; n < group.size() && status.ok(); ++n) {
    if (!HasOutput(group[n]) || Cancelled(group[n].problem)) continue;
    const NaiveMatrices matrices =
        Place(group[n], placed.problems[n], placed.scratch);
    status = Run(group[n], placed.params, matrices, cublas, workspace.stream(),
                 counts)
                 .All();
  }
  if (!status.ok()) return status;
  return counts;
}

int64_t NaiveScratchBytes(const Problem& p) {
  // In double, so that nothing overflows.
  const double rows = static_cast<double>(p.batch) *
                      static_cast<double>(p.q_heads) *
                      static_cast<double>(p.q_len);
  double columns = kPitchElements;
  for (const KvSegment& s : p.kv) columns += static_cast<double>(s.len);
  double bytes = rows * columns * (4.0 + SizeOf(p.dtype()));  // S, P
  bytes += rows * 8;                                          // m, l
  if (NeedsWideOutput(p)) bytes += rows * p.value_dim * 4;    // O
  return Saturate(bytes + 5 * kTensorAlignment);
}

}  // namespace attnd::cuda
