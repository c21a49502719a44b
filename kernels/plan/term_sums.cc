#include "kernels/plan/term_sums.h"

#include <map>
#include <utility>

#include "kernels/plan/cuts.h"

namespace attnd::plan {
namespace {

// What a total has of a term, on its own device.
struct Here {
  int buffer = 0;
  Run tokens;
  int step = 0;  // which brings it
};

// From one device.
struct Fetch {
  Pull pull;
  std::vector<int> after;
  std::vector<std::pair<size_t, size_t>> brings;  // total, and which term here
};

// The sum's parts: which terms there are changes from token to token.
std::vector<int> AddUp(int device, const Total& total,
                       absl::Span<const Here> terms, PlanBuilder& builder) {
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
      sum.terms.push_back(term.buffer);
      after.push_back(term.step);
    }
    steps.push_back(builder.Add(device, std::move(sum), std::move(after)));
  }
  return steps;
}

}  // namespace

std::vector<std::vector<int>> SumTerms(int device,
                                       absl::Span<const Total> totals,
                                       PlanBuilder& builder) {
  std::vector<std::vector<Here>> here(totals.size());
  std::map<int, Fetch> fetches;  // by device
  for (size_t i = 0; i < totals.size(); ++i) {
    for (const Term& term : totals[i].terms) {
      const Buffer theirs = builder.buffer(term.buffer);  // they move
      Slice slice = totals[i].slice;
      slice.tokens = Common(slice.tokens, theirs.slice.tokens);
      if (slice.tokens.empty()) continue;
      here[i].push_back({term.buffer, slice.tokens, term.step});
      if (theirs.device == device) continue;
      here[i].back().buffer =
          builder.NewBuffer(device, theirs.tensor, theirs.dtype, slice);
      Fetch& fetch = fetches[theirs.device];
      fetch.pull.items.push_back({term.buffer, here[i].back().buffer, slice});
      fetch.after.push_back(term.step);
      fetch.brings.emplace_back(i, here[i].size() - 1);
    }
  }
  for (auto& [peer, fetch] : fetches) {
    fetch.pull.peer = peer;
    const int step =
        builder.Add(device, std::move(fetch.pull), std::move(fetch.after));
    for (const auto& [total, term] : fetch.brings)
      here[total][term].step = step;
  }
  std::vector<std::vector<int>> summed;
  summed.reserve(totals.size());
  for (size_t i = 0; i < totals.size(); ++i) {
    summed.push_back(AddUp(device, totals[i], here[i], builder));
  }
  return summed;
}

}  // namespace attnd::plan
