#include "kernels/plan/validate_trace.h"

#include <algorithm>
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

bool StepTrace::Writes(int buffer, const Slice& slice,
                       absl::Span<const int> results, const Runs& own,
                       const Part* part) {
  if (!IsBuffer(buffer)) return Fail("no such buffer");
  const Buffer& to = plan_.buffers[buffer];
  if (to.device != step().device) return Fail("writes to another device");
  if (!IsIn(slice, to.slice)) return Fail("writes beyond a buffer");
  Area area = AreaOf(slice, index_, part);
  area.over = own;
  for (const Area& other : written_[buffer]) {
    if (Shared(area, other) > 0) return Fail("writes what was written");
  }
  used_[buffer].push_back(index_);
  // In pieces, each of which any of the results' areas has or has not.
  Runs heads, tokens;
  for (const int result : results) {
    for (const Area& other : written_[result]) {
      if (Shared(area, other) == 0) continue;
      heads.push_back({other.head, other.heads});
      tokens.push_back(other.tokens);
    }
  }
  for (const Run& head : CutAtEnds({area.head, area.heads}, heads)) {
    for (const Run& run : CutAtEnds(area.tokens, tokens)) {
      Area piece = area;
      piece.head = head.first;
      piece.heads = head.count;
      piece.tokens = run;
      if (!WritesArea(buffer, std::move(piece), results)) return false;
    }
  }
  return true;
}

bool StepTrace::WritesArea(int buffer, Area area,
                           absl::Span<const int> results) {
  for (const int result : results) {
    for (const Area& other : written_[result]) {
      if (Shared(area, other) == 0) continue;
      area.over.insert(area.over.end(), other.over.begin(), other.over.end());
    }
  }
  const bool disjoint = AreDisjoint(area.over);
  written_[buffer].push_back(std::move(area));
  return disjoint || Fail("counts the same pairs twice");
}

bool StepTrace::AddsTo(int before, int buffer, const Slice& slice) {
  if (!Reads(before, slice, step().device)) return false;
  if (!IsBuffer(buffer)) return Fail("no such buffer");
  const Buffer& from = plan_.buffers[before];
  if (from.tensor != plan_.buffers[buffer].tensor) {
    return Fail("adds to another tensor");
  }
  if (from.dtype != DType::kF32) return Fail("adds to what was rounded");
  adds_[buffer] = {index_, before};
  return true;
}

// As long as both are laid out alike, and nothing else of the step reads it.
bool StepTrace::AddsInPlace(int before, int buffer, int step) const {
  const auto adds = adds_.find(buffer);
  return adds != adds_.end() && adds->second == std::pair(step, before) &&
         plan_.buffers[buffer].reuses == before &&
         plan_.buffers[buffer].dtype == DType::kF32 &&
         plan_.buffers[buffer].slice == plan_.buffers[before].slice &&
         std::count(used_[before].begin(), used_[before].end(), step) == 1;
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
      for (const Area& written : written_[i]) {
        CheckDone(*earlier, static_cast<int>(i), written);
      }
    }
  }
}

void StepTrace::CheckDone(int buffer, int next, const Area& by) {
  for (const int step : used_[buffer]) {
    if (before_[by.step][step]) continue;
    if (step == by.step && AddsInPlace(buffer, next, step)) continue;
    index_ = by.step;
    Fail(absl::StrCat("writes over what step ", step, " uses"));
  }
}

}  // namespace attnd::plan
