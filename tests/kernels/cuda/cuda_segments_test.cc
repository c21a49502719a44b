// Keys in very many segments, on a GPU: as accurate as in one.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using testing::CheckResults;
using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;
using testing::OwnedTensor;
using testing::Slack;

constexpr int64_t kDim = 32;
// [segment][sequence]
using Lengths = std::vector<std::vector<int64_t>>;

Lengths Pages(int count, int64_t tokens) {
  return Lengths(count, std::vector<int64_t>(1, tokens));
}

Lengths RandomLengths(int count, int64_t batch, int64_t most) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> length(0, most);
  Lengths lengths(count, std::vector<int64_t>(batch));
  for (auto& of : lengths) {
    for (int64_t& len : of) len = length(random);
  }
  return lengths;
}

// The keys of each sequence.
std::vector<int64_t> Totals(const Lengths& lengths) {
  std::vector<int64_t> totals(lengths.front().size(), 0);
  for (const auto& of : lengths) {
    for (size_t b = 0; b < of.size(); ++b) totals[b] += of[b];
  }
  return totals;
}

// A problem of one segment, and the same keys cut into segments of the given
// lengths. Between a sequence's own length and the segment's all is NaN.
struct CutProblem {
  CutProblem(const Lengths& lengths, DenseShape shape) : lens(lengths) {
    totals = Totals(lengths);
    shape.batch = static_cast<int64_t>(totals.size());
    shape.kv_len = *std::max_element(totals.begin(), totals.end());
    whole.emplace(1, shape);
    segment = whole->args.problem.kv.front();
    segment.lens = totals;
    whole->args.problem.kv = {&segment, 1};
    starts.assign(lens.size(), std::vector<int64_t>(shape.batch, 0));
    for (size_t n = 0; n < lens.size(); ++n) {
      for (int64_t b = 0; n > 0 && b < shape.batch; ++b) {
        starts[n][b] = starts[n - 1][b] + lens[n - 1][b];
      }
      Cut(n);
    }
    cut = whole->args;
    cut.problem.kv = segments;
  }
  CutProblem(const CutProblem&) = delete;
  CutProblem& operator=(const CutProblem&) = delete;

  void SetMask(const Mask& mask) {
    whole->args.problem.mask = cut.problem.mask = mask;
  }

  // Adds segment n.
  void Cut(size_t n) {
    KvSegment s;
    s.len = *std::max_element(lens[n].begin(), lens[n].end());
    s.positions.start = starts[n][0];
    if (lens[n].size() > 1) {
      s.lens = lens[n];
      s.positions.starts = starts[n];
    }
    k.push_back(Piece(whole->k, n, s.len));
    v.push_back(Piece(whole->v, n, s.len));
    s.k = std::as_const(k.back()).view();
    s.v = std::as_const(v.back()).view();
    segments.push_back(s);
  }
  OwnedTensor Piece(const OwnedTensor& of, size_t n, int64_t len) const {
    OwnedTensor piece(of.dtype(), of.batch(), len, of.heads(), of.dim());
    for (int64_t b = 0; b < of.batch(); ++b) {
      for (int64_t t = 0; t < lens[n][b]; ++t) {
        for (int64_t h = 0; h < of.heads(); ++h) {
          for (int64_t d = 0; d < of.dim(); ++d) {
            piece.Set(b, t, h, d, of.Get(b, starts[n][b] + t, h, d));
          }
        }
      }
    }
    return piece;
  }

  std::optional<DenseProblem> whole;
  ForwardArgs cut;  // of the whole's outputs
  KvSegment segment;
  std::vector<int64_t> totals;
  Lengths lens, starts;
  std::vector<OwnedTensor> k, v;
  std::vector<KvSegment> segments;
};

struct Rows {
  DType dtype;
  int64_t q_len;
};
class CudaSegmentsTest : public DeviceTest,
                         public ::testing::WithParamInterface<Rows> {
 protected:
  void ExpectAsWhole(const Lengths& lengths, int64_t q_heads) {
    CutProblem problem(lengths, {.dtype = GetParam().dtype,
                                 .q_len = GetParam().q_len,
                                 .q_heads = q_heads,
                                 .dim = kDim});
    DenseProblem& whole = *problem.whole;
    for (const Mask& mask :
         {Mask{}, Mask{.causal = true}, Mask{.causal = true, .left = 1000}}) {
      SCOPED_TRACE(absl::StrCat("causal ", mask.causal, " left ", mask.left));
      problem.SetMask(mask);
      whole.o.Poison();
      whole.lse.Poison();
      const auto counts = device().Forward({&problem.cut, 1});
      ASSERT_TRUE(counts.ok()) << counts.status();
      ASSERT_TRUE(CheckResults(whole.args.problem, whole.o.dtype(),
                               whole.o.Values(), whole.lse.Values(),
                               Slack::kApproximations));
    }
  }
};

TEST_P(CudaSegmentsTest, ThousandsOfPagesAreAsOneSegment) {
  ExpectAsWhole(Pages(3000, 16), 1);
}

TEST_P(CudaSegmentsTest, HundredsOfSegmentsOfAnyLengthAreAsOne) {
  ExpectAsWhole(RandomLengths(500, 2, 40), 2);
}

// Fewer keys than a tile has columns, and most segments have none.
TEST_P(CudaSegmentsTest, HundredsOfNearlyEmptySegmentsAreAsOne) {
  Lengths lengths(500, {0, 0});
  for (size_t n = 3; n < lengths.size(); n += 40) lengths[n] = {1, 3};
  ExpectAsWhole(lengths, 2);
}

std::vector<Rows> AllRows() {
  std::vector<Rows> all;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t q_len : {1, 16, 40, 130}) all.push_back({dtype, q_len});
  }
  return all;
}

std::string Name(const ::testing::TestParamInfo<Rows>& info) {
  const DType dtype = info.param.dtype;
  return absl::StrCat(dtype == DType::kF32   ? "F32"
                      : dtype == DType::kF16 ? "F16"
                                             : "Bf16",
                      "Queries", info.param.q_len);
}

INSTANTIATE_TEST_SUITE_P(Rows, CudaSegmentsTest, ::testing::ValuesIn(AllRows()),
                         Name);

}  // namespace
}  // namespace attnd
