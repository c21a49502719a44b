#ifndef ATTND_KERNELS_TEAM_HOST_TENSORS_H_
#define ATTND_KERNELS_TEAM_HOST_TENSORS_H_

// Where the tensors of a group lie in the host's memory, sequence by sequence.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/plan/plan_request.h"
#include "kernels/plan/run.h"
#include "kernels/request.h"

namespace attnd {

// [tokens, heads, elements], the last contiguous, strides in elements. Of LSE
// and its kin a token has one element, of a bias a row of columns.
struct Place {
  std::byte* data = nullptr;  // of the first token of head 0
  DType dtype = DType::kF32;
  int64_t token_stride = 0, head_stride = 0;
  // Of a bias: whether rows have all columns, or those of a slice's runs alone.
  bool has_all_columns = false;
  // Which tokens there are.
  int64_t first_token = 0, token_step = 1;

  std::byte* At(int64_t token, int64_t head) const {
    return data + ((token - first_token) / token_step * token_stride +
                   head * head_stride) *
                      SizeOf(dtype);
  }
  // From one of these tokens, which all lie here, to the next.
  int64_t StrideOf(const plan::Run& tokens) const {
    return tokens.step / token_step * token_stride;
  }
};

// A group's arguments, kept as long as they are needed.
struct Group {
  std::vector<ForwardArgs> forward;  // or
  std::vector<BackwardArgs> backward;

  size_t size() const { return forward.size() + backward.size(); }
  const Problem& problem(size_t i) const {
    return forward.empty() ? backward[i].problem : forward[i].problem;
  }
};

// The tensor of the sequence; `id` is one that the group has. Inputs are only
// read.
Place PlaceOf(const Group& group, const plan::SequenceShape& sequence,
              TensorId id);

// Writes what outputs hold of tokens past their sequences' lengths: O and
// gradients 0, LSE -inf.
void FillPadding(const Group& group);

// Whether whoever asked has given up all of it.
bool IsCancelled(const Group& group);

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_HOST_TENSORS_H_
