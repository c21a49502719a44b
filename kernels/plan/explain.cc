#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/plan/make_plan.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {
namespace {

std::string Text(const Run& run) {
  std::string text = absl::StrCat(run.first, "..", run.end());
  if (run.step != 1) absl::StrAppend(&text, " by ", run.step);
  return text;
}

std::string Text(TensorId id, const Slice& slice) {
  std::string text = absl::StrCat(
      TensorName(id), "[", slice.sequence, " heads ", slice.head, "..",
      slice.head + slice.heads, " tokens ", Text(slice.tokens));
  for (const Run& run : slice.columns) {
    absl::StrAppend(&text, " columns ", Text(run));
  }
  return absl::StrCat(text, "]");
}

bool AddsToGradients(const Part& part) {
  return part.dq_before.has_value() ||
         std::any_of(part.columns.begin(), part.columns.end(),
                     [](const Columns& columns) {
                       return columns.dk_before.has_value() ||
                              columns.dv_before.has_value();
                     });
}

class Explainer {
 public:
  explicit Explainer(const Plan& plan) : plan_(plan) {}

  std::string operator()(const Upload& step) const {
    return absl::StrCat("upload ", Of(step.to, step.slice));
  }
  std::string operator()(const Download& step) const {
    return absl::StrCat("download ", Of(step.from, step.slice));
  }
  std::string operator()(const Pull& step) const {
    return absl::StrCat(
        "pull ",
        absl::StrJoin(step.items, ", ",
                      [this](std::string* out, const Pull::Item& item) {
                        out->append(Of(item.to, item.slice));
                      }),
        " from device ", step.peer);
  }
  std::string operator()(const Dot& step) const {
    return absl::StrCat("dot ", Of(step.delta, step.slice));
  }
  std::string operator()(const Sum& step) const {
    return absl::StrCat("sum ", Of(step.to, step.slice), " of ",
                        step.terms.size());
  }
  std::string operator()(const Merge& step) const {
    std::vector<std::string> to;
    if (step.o.has_value()) to.push_back(Of(*step.o, step.slice));
    if (step.lse.has_value()) to.push_back(Of(*step.lse, step.slice));
    return absl::StrCat("merge ", absl::StrJoin(to, ", "), " of ",
                        step.terms.size());
  }
  std::string operator()(const Compute& step) const {
    return absl::StrCat(
        "compute ",
        absl::StrJoin(step.parts, ", ", [](std::string* out, const Part& part) {
          absl::StrAppend(out, part.sequence, " kv heads ", part.kv_head, "..",
                          part.kv_head + part.kv_heads, " rows ",
                          Text(part.rows));
          for (const Columns& columns : part.columns) {
            absl::StrAppend(out, " columns ", Text(columns.run));
          }
          if (part.before.has_value()) absl::StrAppend(out, " merged");
          if (AddsToGradients(part)) absl::StrAppend(out, " added");
        }));
  }

 private:
  std::string Of(int buffer, const Slice& slice) const {
    return Text(plan_.buffers[buffer].tensor, slice);
  }

  const Plan& plan_;
};

}  // namespace

std::string Explain(const PlanRequest& request, const Plan& plan) {
  std::string text =
      absl::StrCat(PlanName(plan.kind), " over ", plan.devices, " devices, ",
                   request.sequences.size(), " sequences: ", plan.why, "\n");
  for (int device = 0; device < plan.devices; ++device) {
    const PlanCost::Device& cost = plan.cost.devices[device];
    absl::StrAppend(&text, "device ", device, ": ", cost.flops, " FLOPs, ",
                    cost.memory_bytes, " bytes, of which ", cost.uploaded_bytes,
                    " from the host and ", cost.pulled_bytes,
                    " from other devices\n");
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    absl::StrAppend(&text, i, " @", step.device, " ",
                    std::visit(Explainer(plan), step.what));
    if (!step.after.empty()) {
      absl::StrAppend(&text, " after ", absl::StrJoin(step.after, ","));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace attnd::plan
