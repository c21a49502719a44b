// A problem that is decoded alone is read before a block knows what its tile
// is; beside another it is not. Both give the same bits.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/sm80/decode_tiles.h"
#include "kernels/cuda/sm80/kernels.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;
using testing::OwnedRows;
using testing::OwnedTensor;

// Around tiles of 16 and 32 columns, and rings of three or four of them for two
// or four warps.
constexpr int64_t kShort[] = {1, 15, 16, 17, 33, 64, 65, 127, 130, 256, 300};
// Around parts of 4096, up to six of them.
constexpr int64_t kLong[] = {1000, 4096, 4097, 8300, 24000};

// One row, a few, all 16, more than a tile.
struct Rows {
  int64_t q_heads, kv_heads, q_len;
};
constexpr Rows kRows[] = {
    {1, 1, 1}, {8, 2, 1}, {6, 3, 5}, {16, 1, 1}, {4, 2, 16}};

// What rows see: all; fewer tiles than are read, or none; other tiles.
struct Sight {
  Mask mask;
  std::optional<int64_t> q_start;
};
std::vector<Sight> Sights() {
  constexpr int64_t kFar = 30000;  // a window wider than any sequence here
  std::vector<Sight> sights = {
      {}, {{.causal = true}, {}}, {{.causal = true, .left = kFar}, kFar + 40}};
  for (int64_t q_start : {-20, -3, 0, 18, 100}) {
    sights.push_back({{.causal = true}, q_start});
  }
  return sights;
}

bool IsReadAhead(const Problem& p) {
  const cuda::Kernel& kernel = cuda::sm80::FindKernel(
      cuda::sm80::Kind::kDecode, p.dtype(), p.head_dim, p.value_dim);
  return cuda::sm80::DecodeAhead(p, kernel).columns > 0;
}

class CudaReadAheadTest : public DeviceTest,
                          public ::testing::WithParamInterface<int64_t> {
 protected:
  // Whatever rows see, alone and beside itself.
  void Check(const DenseShape& shape) {
    SCOPED_TRACE("kv_len " + std::to_string(shape.kv_len) + ", q_len " +
                 std::to_string(shape.q_len) + ", heads " +
                 std::to_string(shape.q_heads) + "/" +
                 std::to_string(shape.kv_heads));
    DenseProblem problem(3, shape);
    OwnedTensor o = problem.o;
    OwnedRows lse = problem.lse;
    for (const Sight& sight : Sights()) {
      ForwardArgs alone = problem.args;
      alone.problem.mask = sight.mask;
      alone.problem.q_start = sight.q_start;
      ASSERT_TRUE(IsReadAhead(alone.problem));
      ForwardArgs other = alone;
      other.o = o.view();
      other.lse = lse.view();
      problem.o.Poison();
      problem.lse.Poison();
      ASSERT_TRUE(device().Forward({&alone, 1}).ok());
      const std::vector<uint8_t> o_alone = problem.o.bytes(),
                                 lse_alone = problem.lse.bytes();
      for (OwnedTensor* t : {&problem.o, &o}) t->Poison();
      for (OwnedRows* t : {&problem.lse, &lse}) t->Poison();
      const ForwardArgs pair[] = {alone, other};
      ASSERT_TRUE(device().Forward(pair).ok());
      ASSERT_TRUE(problem.o.bytes() == o_alone && o.bytes() == o_alone);
      ASSERT_TRUE(problem.lse.bytes() == lse_alone && lse.bytes() == lse_alone);
    }
  }

  void Check(DType dtype, int64_t batch, const Rows& rows, int64_t kv_len) {
    Check({.dtype = dtype,
           .batch = batch,
           .q_len = rows.q_len,
           .kv_len = kv_len,
           .q_heads = rows.q_heads,
           .kv_heads = rows.kv_heads,
           .dim = GetParam()});
  }
};

TEST_P(CudaReadAheadTest, GivesTheBitsThatItGivesBesideAnother) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (const Rows& rows : kRows) {
      for (int64_t kv_len : kShort) {
        Check(dtype, 2, rows, kv_len);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CudaReadAheadTest, InSeveralParts) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (int64_t kv_len : kLong) {
      Check(dtype, 1, {8, 2, 1}, kv_len);
      if (HasFatalFailure()) return;
    }
    Check(dtype, 2, {4, 2, 16}, 8300);  // and two tiles of rows
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, CudaReadAheadTest,
                         ::testing::Values(64, 96, 128, 192, 256));

}  // namespace
}  // namespace attnd
