#include "kernels/plan/term_fetch.h"

#include <utility>

namespace attnd::plan {

size_t TermFetch::Bring(const Term& term, const Slice& slice) {
  const size_t number = here_.size();
  here_.push_back(term);
  const Buffer theirs = builder_.buffer(term.buffer);  // they move
  if (theirs.device == device_) return number;
  here_[number].buffer =
      builder_.NewBuffer(device_, theirs.tensor, theirs.dtype, slice);
  Fetch& fetch = fetches_[theirs.device];
  fetch.pull.items.push_back({term.buffer, here_[number].buffer, slice});
  fetch.after.push_back(term.step);
  fetch.brings.push_back(number);
  return number;
}

void TermFetch::PullAll() {
  for (auto& [peer, fetch] : fetches_) {
    fetch.pull.peer = peer;
    const int step =
        builder_.Add(device_, std::move(fetch.pull), std::move(fetch.after));
    for (const size_t number : fetch.brings) here_[number].step = step;
  }
  fetches_.clear();
}

}  // namespace attnd::plan
