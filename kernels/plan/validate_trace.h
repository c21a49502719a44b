#ifndef ATTND_KERNELS_PLAN_VALIDATE_TRACE_H_
#define ATTND_KERNELS_PLAN_VALIDATE_TRACE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan.h"

namespace attnd::plan {

// A rectangle of heads and tokens of a buffer or a tensor, which step has
// written it, and which of its parts if it has parts. Of results, what they are
// over: columns where the tokens are rows, and rows where they are columns.
struct Area {
  int64_t head = 0, heads = 0;
  Run tokens;
  int step = 0;
  const Part* part = nullptr;
  Runs over = {};

  bool empty() const { return heads <= 0 || tokens.empty(); }
  int64_t size() const { return heads * std::max<int64_t>(0, tokens.count); }
};

inline Area AreaOf(const Slice& slice, int step = 0,
                   const Part* part = nullptr) {
  return {slice.head, slice.heads, slice.tokens, step, part, {}};
}

int64_t Shared(const Area& a, const Area& b);

// What is known of a plan's buffers when its steps have been gone through, one
// after another, up to one of them. The first thing that is wrong is kept.
class StepTrace {
 protected:
  explicit StepTrace(const Plan& plan)
      : plan_(plan),
        written_(plan.buffers.size()),
        used_(plan.buffers.size()),
        before_(plan.steps.size()) {}
  ~StepTrace() = default;

  // All of these: false, and it has failed, if something is wrong.
  bool CheckBuffers();
  // What follows is of this step, which comes after the last one. Its device
  // and what it waits for are right.
  bool Begin(int step);
  // It writes a slice of a buffer of its own device: results over what all
  // these buffers, which it has read, are over, and over `own`, none of which
  // counts twice. Of a Compute, which of its parts does.
  bool Writes(int buffer, const Slice& slice,
              absl::Span<const int> results = {}, const Runs& own = {},
              const Part* part = nullptr);
  // It writes the buffer by adding to another of the same slice, whose memory
  // may be its own.
  bool AddsTo(int before, int buffer, const Slice& slice);
  // It reads a slice of a buffer of `device`, all of which earlier steps that
  // it waits for have written.
  bool Reads(int buffer, const Slice& slice, int device);
  // Of all steps: whatever has been in a buffer's memory before it is done with
  // before the buffer is written.
  void CheckReuse();

  const Step& step() const { return plan_.steps[index_]; }
  int index() const { return index_; }
  const std::vector<Area>& written(int buffer) const {
    return written_[buffer];
  }
  bool Fail(absl::string_view what);
  // "" if nothing is wrong.
  const std::string& error() const { return error_; }

  const Plan& plan_;

 private:
  bool IsBuffer(int buffer) const {
    return buffer >= 0 && static_cast<size_t>(buffer) < plan_.buffers.size();
  }
  bool WritesArea(int buffer, Area area, absl::Span<const int> results);
  bool AddsInPlace(int before, int buffer, int step) const;
  void CheckDone(int buffer, int next, const Area& by);

  int index_ = 0;
  std::string error_;
  std::vector<std::vector<Area>> written_;  // by buffer
  std::vector<std::vector<int>> used_;      // likewise: steps
  std::vector<std::vector<bool>> before_;   // by step: which come before
  // The step, and what it adds to, of buffers that are written by adding.
  std::map<int, std::pair<int, int>> adds_;
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_VALIDATE_TRACE_H_
