#ifndef ATTND_KERNELS_PLAN_RING_BACKWARD_PLAN_H_
#define ATTND_KERNELS_PLAN_RING_BACKWARD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/plan/adding.h"
#include "kernels/plan/gather.h"
#include "kernels/plan/ring_plan.h"

namespace attnd::plan {

// What backward has of its rows, however columns come and wherever dK and dV
// go: delta is found once, dQ stays where its rows are, each turn of these adds
// to it in f32, and the last one rounds. Heads may be computed in sections.
class RingBackwardPlan : protected RingPlan {
 protected:
  // Has a part write its columns' dK and dV, or add to them: columns that rows
  // of this sequence see. `last`: of the phase no later part of the device does
  // for these.
  using AddGradients =
      absl::FunctionRef<void(int32_t sequence, const RingPlaces::Seen& seen,
                             bool last, Columns& columns, Adding& adding)>;

  RingBackwardPlan(const PlanRequest& request, int devices,
                   const Sections& section_ends);
  ~RingBackwardPlan() = default;

  int sections() const { return static_cast<int>(section_ends_.size()); }
  // A section's kv heads.
  Run HeadsOf(int32_t sequence, size_t section) const;
  template <class Do>
  void ForEachDevice(Do todo) {
    for (int device = 0; device < devices(); ++device) todo(device);
  }

  // Where O is given and not delta.
  void FindDeltas();
  // Computes a phase of one section on one device.
  void ComputePhase(int device, int phase, size_t section, AddGradients add);

 private:
  // Of one run of rows and one section of heads.
  struct SectionRows {
    std::optional<int> dq;  // the last buffer in its memory
    Steps dotted;           // the step that finds delta
  };

  Slice SliceOf(const Rows& rows, size_t section) const;
  SectionRows& SectionOf(const Rows& rows, size_t section) {
    return of_sections_[&rows - rows_.data()][section];
  }
  void FindDelta(Rows& rows);
  void ComputeRows(int device, size_t section, const std::vector<Rows*>& now,
                   const std::vector<Rows*>& later, AddGradients add);
  void AddDq(Rows& rows, size_t section, Part& part);

  const Sections section_ends_;
  std::vector<std::vector<SectionRows>> of_sections_;  // by run of rows
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_RING_BACKWARD_PLAN_H_
