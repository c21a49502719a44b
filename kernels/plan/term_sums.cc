#include "kernels/plan/term_sums.h"

#include <cstddef>
#include <utility>

#include "kernels/plan/cuts.h"

namespace attnd::plan {
namespace {

// What a total has of a term, on its own device.
struct Here {
  size_t number = 0;  // in the fetch
  Run tokens;
};

// The sum's parts: which terms there are changes from token to token.
std::vector<int> AddUp(int device, const Total& total,
                       absl::Span<const Here> terms, const TermFetch& fetch,
                       PlanBuilder& builder) {
  Runs runs;
  runs.reserve(terms.size());
  for (const Here& term : terms) runs.push_back(term.tokens);
  std::vector<int> steps;
  for (const Run& piece : CutAtEnds(total.slice.tokens, runs)) {
    Sum sum;
    sum.to = total.buffer;
    sum.slice = total.slice;
    sum.slice.tokens = piece;
    std::vector<int> after;
    for (const Here& term : terms) {
      if (!term.tokens.Has(piece)) continue;
      sum.terms.push_back(fetch.At(term.number).buffer);
      after.push_back(fetch.At(term.number).step);
    }
    steps.push_back(builder.Add(device, std::move(sum), std::move(after)));
  }
  return steps;
}

}  // namespace

std::vector<std::vector<int>> SumTerms(int device,
                                       absl::Span<const Total> totals,
                                       PlanBuilder& builder) {
  TermFetch fetch(device, builder);
  std::vector<std::vector<Here>> here(totals.size());
  for (size_t i = 0; i < totals.size(); ++i) {
    for (const Term& term : totals[i].terms) {
      Slice slice = totals[i].slice;
      slice.tokens =
          Common(slice.tokens, builder.buffer(term.buffer).slice.tokens);
      if (slice.tokens.empty()) continue;
      here[i].push_back({fetch.Bring(term, slice), slice.tokens});
    }
  }
  fetch.PullAll();
  std::vector<std::vector<int>> summed;
  summed.reserve(totals.size());
  for (size_t i = 0; i < totals.size(); ++i) {
    summed.push_back(AddUp(device, totals[i], here[i], fetch, builder));
  }
  return summed;
}

}  // namespace attnd::plan
