#ifndef ATTND_TESTS_KERNELS_MERGE_PROBLEM_H_
#define ATTND_TESTS_KERNELS_MERGE_PROBLEM_H_

// Results over several sets of columns that a member of a team is to merge, and
// what must come of it, whatever kind of device it is.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/team/member_stream.h"

namespace attnd::testing {

// A tensor in memory with gaps between its rows: token t of head h begins with
// element first + t * token_stride + h * head_stride.
struct PlacedRows {
  std::vector<std::byte> memory;
  DType dtype = DType::kF32;
  int64_t first = 0, token_stride = 0, head_stride = 0;

  int64_t At(int64_t token, int64_t head) const {
    return first + token * token_stride + head * head_stride;
  }
};

class MergeProblem {
 public:
  // Any number of terms, shapes, layouts and types. LSE of a row's terms lie
  // near each other or far apart, are huge, -inf, where O is NaN, or NaN.
  explicit MergeProblem(uint32_t seed);

  // All that a merge reads, and what it writes to, which is full of 0x5A.
  const std::vector<PlacedRows>& o() const { return o_; }
  const std::vector<PlacedRows>& lse() const { return lse_; }
  const PlacedRows& to_o() const { return to_o_; }
  const PlacedRows& to_lse() const { return to_lse_; }
  std::string Describe() const;

  // Calls `merge` with the merge whose tensors lie where `memory_of` says; one
  // result is left out now and then.
  void Merge(const std::function<std::byte*(const PlacedRows&)>& memory_of,
             const std::function<void(const RowMerges&)>& merge) const;
  // Whether `o` and `lse`, the memory of what was written to, are right, and
  // nothing has been written beside the rows.
  ::testing::AssertionResult IsRight(const std::vector<std::byte>& o,
                                     const std::vector<std::byte>& lse) const;

 private:
  struct Row {
    std::vector<double> weights;  // of the terms, or NaN
    double lse = 0;
  };
  Row MergedLse(int64_t row, int64_t head) const;
  ::testing::AssertionResult IsRowRight(const std::vector<std::byte>& got,
                                        int64_t row, int64_t head) const;

  int64_t rows_ = 1, heads_ = 1, dim_ = 1;
  bool has_o_ = true, has_lse_ = true;
  std::vector<PlacedRows> o_, lse_;
  PlacedRows to_o_, to_lse_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_MERGE_PROBLEM_H_
