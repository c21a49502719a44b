#ifndef ATTND_KERNELS_PLAN_PULLED_GRADIENTS_H_
#define ATTND_KERNELS_PLAN_PULLED_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/plan/adding.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/ring_places.h"

namespace attnd::plan {

// dK and dV of blocks that are pulled from all, where they are wanted: each
// device has a term of each block of which its rows see anything, in f32. The
// device whose block it is pulls the terms, and adds them up in the order of
// devices.
class PulledGradients {
 public:
  // By sequence, where its blocks are. They, and the builder, must outlive it.
  PulledGradients(std::vector<const RingPlaces*> places, PlanBuilder& builder);

  // Has a part of a device write its term of these columns, which rows of this
  // sequence see, or add to what another run of the device's rows has written.
  void Add(int32_t sequence, int device, const RingPlaces::Seen& seen,
           Columns& columns, Adding& adding);
  // Sends what the device's own block has, once all terms are there.
  void SendSums(int device);

 private:
  struct DeviceTerm {
    PerTensor<std::optional<int>> buffers;  // the last ones in their memory
    std::vector<int> written;               // the step that writes these
  };
  // By run of a block, and device.
  using BlockTerms = std::vector<std::vector<DeviceTerm>>;

  DType DTypeOf(int32_t sequence, TensorId id) const {
    return *builder_.request().ProblemOf(sequence).outputs[id];
  }
  Slice ColumnsOf(int32_t sequence, const Run& run) const {
    const int64_t heads = builder_.request().ProblemOf(sequence).kv_heads;
    return builder_.ColumnsOf(sequence, 0, heads, run);
  }
  // Calls todo(id) for those of dK and dV that are wanted.
  template <class Do>
  void ForEachWanted(int32_t sequence, Do todo) const;

  const std::vector<const RingPlaces*> places_;
  PlanBuilder& builder_;
  std::vector<std::vector<BlockTerms>> terms_;  // by sequence and block
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_PULLED_GRADIENTS_H_
