#ifndef ATTND_KERNELS_TEAM_PLAN_TENSORS_H_
#define ATTND_KERNELS_TEAM_PLAN_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"
#include "kernels/team/host_tensors.h"
#include "kernels/team/member_stream.h"

namespace attnd {

// Where a plan's tensors lie, in the host's memory and in its buffers, and what
// its steps are in terms of memory.
class PlanTensors {
 public:
  // All must outlive it.
  PlanTensors(const plan::PlanRequest& request, const plan::Plan& plan,
              const Group& group)
      : request_(request), plan_(plan), group_(group) {}

  // The memory of all buffers, in order.
  void set_memory(std::vector<std::byte*> memory) {
    memory_ = std::move(memory);
  }

  // The buffer, as if it held all of its tensor; and that tensor.
  Place Buffer(int index) const;
  Place Host(int index) const;
  // Adds the copies that make up a slice of the buffer's tensor.
  void AddCopies(int buffer, const plan::Slice& slice, const Place& from,
                 const Place& to, std::vector<BlockCopy>& copies) const;

  RowDots Dots(const plan::Dot& dot) const;
  // But for the terms: all of them lie as the result does, a head's tokens, or
  // a token's heads, side by side.
  BlockSum SumWithoutTerms(const plan::Sum& sum) const;
  BlockSum::Term TermOf(const plan::Sum& sum, int buffer) const;
  // But for the terms.
  RowMerges MergeWithoutTerms(const plan::Merge& merge) const;
  // Some rows of a state.
  RowState StateOf(const plan::State& state, const plan::Slice& rows) const;
  // The part's problem, to which `segments` must lend its columns as long as it
  // is used.
  ForwardArgs Forward(const plan::Part& part,
                      std::vector<KvSegment>& segments) const;
  BackwardArgs Backward(const plan::Part& part,
                        std::vector<KvSegment>& segments) const;

 private:
  static void AddBiasCopies(const plan::Slice& slice, const Place& from,
                            const Place& to, std::vector<BlockCopy>& copies);
  Problem ProblemOf(const plan::Part& part,
                    std::vector<KvSegment>& segments) const;
  // What has rows, from the part's first row and head on; a null view if the
  // part has none.
  TensorView RowsOf(const plan::Part& part, TensorId id) const;
  TensorView RowsOf(const plan::Part& part, TensorId id,
                    const std::optional<int>& buffer) const;
  RowView FloatsOf(const plan::Part& part, TensorId id) const;

  const plan::PlanRequest& request_;
  const plan::Plan& plan_;
  const Group& group_;
  std::vector<std::byte*> memory_;  // by buffer
};

}  // namespace attnd

#endif  // ATTND_KERNELS_TEAM_PLAN_TENSORS_H_
