#ifndef ATTND_TESTS_KERNELS_SEQUENCE_ALONE_H_
#define ATTND_TESTS_KERNELS_SEQUENCE_ALONE_H_

// One sequence of a padded batch as a problem of its own, and whether both give
// the same bits.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention.h"
#include "tests/kernels/owned_tensor.h"

namespace attnd::testing {

// Sequence b of a view.
ConstTensorView Only(ConstTensorView view, int64_t b);
ConstRowView Only(ConstRowView view, int64_t b);

// Sequence b of `p` with nothing around it: its own lengths, no padding. `p`
// has no bias. `segments` is where the result's segments are.
Problem Alone(const Problem& p, int64_t b, std::vector<KvSegment>* segments);

// The output of sequence b, alone: as `t`, but of `tokens` tokens.
OwnedTensor AloneLike(const OwnedTensor& t, int64_t tokens);

// Whether `alone` is sequence b of `batch`, bit by bit; true if it is absent.
bool IsSequence(const OwnedTensor& alone, const OwnedTensor& batch, int64_t b);
bool IsSequence(const OwnedRows& alone, const OwnedRows& batch, int64_t b,
                int64_t heads, int64_t rows);

// Types and dims that take all of a backend's kernels, for parameterised tests.
struct InvarianceShape {
  DType dtype;
  int64_t head_dim, value_dim;
};
std::vector<InvarianceShape> InvarianceShapes();
std::string ShapeName(const ::testing::TestParamInfo<InvarianceShape>& info);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_SEQUENCE_ALONE_H_
