#ifndef ATTND_KERNELS_PLAN_GATHER_PLAN_H_
#define ATTND_KERNELS_PLAN_GATHER_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/plan/gather.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {

// What plans of `gather` are put together with, whichever they fetch.
class GatherPlan {
 protected:
  GatherPlan(const PlanRequest& request, int devices, const Sections& sections)
      : builder_(request, devices, PlanKind::kGather),
        placings_(PlaceTokens(request, devices)),
        sections_(static_cast<int>(sections.size())),
        section_ends_(sections) {}
  ~GatherPlan() = default;

  const PlanRequest& request() const { return builder_.request(); }
  int32_t sequences() const {
    return static_cast<int32_t>(request().sequences.size());
  }
  // A section's kv heads of a sequence.
  HeadRange Heads(int32_t i, int section) const {
    return SectionHeads(request().ProblemOf(i), section_ends_, section);
  }

  template <class Do>
  void ForEachDevice(Do todo) {
    for (int device = 0; device < builder_.devices(); ++device) todo(device);
  }
  // From the next device on, so that not all ask the same one at once.
  template <class Do>
  void ForEachPeer(int device, Do todo) {
    for (int next = 1; next < builder_.devices(); ++next) {
      todo((device + next) % builder_.devices());
    }
  }
  template <class Do>
  void ForEachSection(Do todo) {
    for (int section = 0; section < sections_; ++section) {
      ForEachDevice([&](int device) { todo(device, section); });
    }
  }
  // Computes all sections. What they have terms of is summed up behind the next
  // section, which so need not wait for the terms.
  template <class Compute, class Sum>
  void ComputeAndSum(Compute compute, Sum sum) {
    const auto sum_section = [&](int section) {
      ForEachDevice([&](int device) { sum(device, section); });
    };
    for (int section = 0; section < sections_; ++section) {
      ForEachDevice([&](int device) { compute(device, section); });
      if (section > 0) sum_section(section - 1);
    }
    sum_section(sections_ - 1);
  }

  // `what` is fetched in sections: "rows stay, columns".
  Plan Finish(absl::string_view what) {
    return builder_.Finish(
        absl::StrCat(what, " in ", sections_, " sections of heads"), sections_);
  }

  PlanBuilder builder_;
  const std::vector<Placing> placings_;  // by sequence
  const int sections_;

 private:
  const Sections section_ends_;
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_GATHER_PLAN_H_
