#include "kernels/plan/validate_trace.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace attnd::plan {
namespace {

bool IsIn(const Slice& slice, const Slice& whole) {
  return slice.sequence == whole.sequence && slice.tokens.step >= 1 &&
         Run{whole.head, whole.heads}.Has({slice.head, slice.heads}) &&
         whole.tokens.Has(slice.tokens);
}

}  // namespace

int64_t Shared(const Area& a, const Area& b) {
  const Run heads = Common({a.head, a.heads}, {b.head, b.heads});
  const Run tokens = Common(a.tokens, b.tokens);
  return heads.empty() || tokens.empty() ? 0 : heads.count * tokens.count;
}

bool StepTrace::Fail(absl::string_view what) {
  if (error_.empty()) error_ = absl::StrCat("step ", index_, ": ", what);
  return false;
}

bool StepTrace::CheckBuffers() {
  std::vector<bool> reused(plan_.buffers.size());
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const Buffer& buffer = plan_.buffers[i];
    if (buffer.device < 0 || buffer.device >= plan_.devices) {
      return Fail("no such device");
    }
    if (buffer.slice.tokens.step < 1) return Fail("no such tokens");
    if (!buffer.reuses.has_value()) continue;
    const int earlier = *buffer.reuses;
    if (earlier < 0 || earlier >= static_cast<int>(i)) {
      return Fail("reuses a later buffer");
    }
    if (plan_.buffers[earlier].device != buffer.device) {
      return Fail("reuses another device's memory");
    }
    if (reused[earlier]) return Fail("memory is reused twice");
    reused[earlier] = true;
  }
  return true;
}

bool StepTrace::Begin(int index) {
  index_ = index;
  // All steps that have happened before this one.
  std::vector<bool>& before = before_[index_];
  before.resize(plan_.steps.size());
  if (step().device < 0 || step().device >= plan_.devices) {
    return Fail("no such device");
  }
  for (int other : step().after) {
    if (other < 0 || other >= index_) return Fail("waits for a later step");
    before[other] = true;
    for (int i = 0; i < other; ++i) {
      if (before_[other][i]) before[i] = true;
    }
  }
  return true;
}

bool StepTrace::Writes(int buffer, const Slice& slice, const Part* part) {
  if (!IsBuffer(buffer)) return Fail("no such buffer");
  const Buffer& to = plan_.buffers[buffer];
  if (to.device != step().device) return Fail("writes to another device");
  if (!IsIn(slice, to.slice)) return Fail("writes beyond a buffer");
  const Area area = AreaOf(slice, index_, part);
  for (const Area& other : written_[buffer]) {
    if (Shared(area, other) > 0) return Fail("writes what was written");
  }
  written_[buffer].push_back(area);
  used_[buffer].push_back(index_);
  return true;
}

bool StepTrace::Reads(int buffer, const Slice& slice, int device) {
  if (!IsBuffer(buffer)) return Fail("no such buffer");
  if (plan_.buffers[buffer].device != device) {
    return Fail("reads another device's memory");
  }
  if (!IsIn(slice, plan_.buffers[buffer].slice)) {
    return Fail("reads beyond a buffer");
  }
  const Area area = AreaOf(slice);
  int64_t there = 0;
  for (const Area& other : written_[buffer]) {
    if (before_[index_][other.step]) there += Shared(area, other);
  }
  used_[buffer].push_back(index_);
  return there == area.size() || Fail("reads what need not be there");
}

void StepTrace::CheckReuse() {
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    std::optional<int> earlier = plan_.buffers[i].reuses;
    for (; earlier.has_value(); earlier = plan_.buffers[*earlier].reuses) {
      for (const Area& written : written_[i]) CheckDone(*earlier, written);
    }
  }
}

void StepTrace::CheckDone(int buffer, const Area& by) {
  for (const int step : used_[buffer]) {
    if (before_[by.step][step]) continue;
    index_ = by.step;
    Fail(absl::StrCat("writes over what step ", step, " uses"));
  }
}

}  // namespace attnd::plan
