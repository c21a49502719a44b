#include "kernels/plan/validate_parts.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/plan/cost.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {
namespace {

int64_t Tokens(const Runs& runs) {
  int64_t tokens = 0;
  for (const Run& run : runs) tokens += run.count;
  return tokens;
}

// Those of `runs` that lie in `in`.
Runs Within(const Run& in, const Runs& runs) {
  Runs within;
  for (const Run& run : runs) {
    const Run common = Common(in, run);
    if (!common.empty()) within.push_back(common);
  }
  return within;
}

void AddColumns(const Part& part, Runs& runs) {
  for (const Columns& columns : part.columns) runs.push_back(columns.run);
}

// Of rows that each of `parts` has as a whole or not at all.
std::string FaultOfRows(const RowIntervals& sees, const Run& rows,
                        absl::Span<const Part* const> parts) {
  Runs all;
  for (const Part* part : parts) {
    if (part->rows.Has(rows)) AddColumns(*part, all);
  }
  const Run needed = Needed(sees, rows);
  const Runs have = Within(needed, all);
  if (!AreDisjoint(have)) return "a pair is computed twice";
  if (Tokens(have) < needed.count) return "a pair is left out";
  return "";
}

}  // namespace

std::string FaultOfPairs(const PlanRequest& request,
                         absl::Span<const Part* const> parts) {
  const auto sequences = static_cast<int32_t>(request.sequences.size());
  for (int32_t i = 0; i < sequences; ++i) {
    const RowIntervals& sees = request.sequences[i].sees;
    for (int64_t head = 0; head < request.ProblemOf(i).kv_heads; ++head) {
      std::vector<const Part*> of_head;
      Runs ends;
      for (const Part* part : parts) {
        if (part->sequence != i || head < part->kv_head ||
            head >= part->kv_head + part->kv_heads) {
          continue;
        }
        of_head.push_back(part);
        ends.push_back(part->rows);
      }
      for (const Run& rows : CutAtEnds({0, sees.rows}, ends)) {
        std::string fault = FaultOfRows(sees, rows, of_head);
        if (!fault.empty()) return fault;
      }
    }
  }
  return "";
}

std::string FaultOfCosts(const PlanRequest& request, const Plan& plan) {
  // Counted anew from the steps, and from the buffers.
  std::vector<PlanCost::Device> costs(plan.devices);
  const std::vector<int64_t> memory = MemoryBytes(request, plan);
  for (size_t i = 0; i < memory.size(); ++i) {
    costs[plan.buffers[i].device].memory_bytes +=
        (memory[i] + kTensorAlignment - 1) / kTensorAlignment *
        kTensorAlignment;
  }
  for (const Step& step : plan.steps) {
    const auto* pull = std::get_if<Pull>(&step.what);
    if (pull == nullptr || pull->peer == step.device) continue;
    for (const Pull::Item& item : pull->items) {
      const Buffer& to = plan.buffers[item.to];
      costs[step.device].pulled_bytes +=
          SliceBytes(request, to.tensor, to.dtype, item.slice);
    }
  }
  double flops = 0, all_flops = 0;
  for (int device = 0; device < plan.devices; ++device) {
    const PlanCost::Device& cost = plan.cost.devices[device];
    if (cost.memory_bytes != costs[device].memory_bytes ||
        cost.pulled_bytes != costs[device].pulled_bytes) {
      return "costs are wrong";
    }
    flops += cost.flops;
  }
  for (const SequenceShape& sequence : request.sequences) {
    all_flops += FlopsOf(request, sequence);
  }
  if (std::abs(flops - all_flops) > 1e-9 * all_flops) {
    return "pairs are not all computed once";
  }
  return "";
}

}  // namespace attnd::plan
