#include "kernels/plan/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {
namespace {

// A rectangle of heads and tokens of a buffer or a tensor, and which step has
// written it.
struct Area {
  int64_t head = 0, heads = 0;
  Run tokens;
  int step = 0;

  bool empty() const { return heads <= 0 || tokens.empty(); }
  int64_t size() const { return heads * std::max<int64_t>(0, tokens.count); }
};

Area AreaOf(const Slice& slice, int step = 0) {
  return {slice.head, slice.heads, slice.tokens, step};
}

int64_t Shared(const Area& a, const Area& b) {
  const Run heads = Common({a.head, a.heads}, {b.head, b.heads});
  const Run tokens = Common(a.tokens, b.tokens);
  return heads.empty() || tokens.empty() ? 0 : heads.count * tokens.count;
}

class Validator {
 public:
  Validator(const PlanRequest& request, const Plan& plan)
      : request_(request),
        plan_(plan),
        written_(plan.buffers.size()),
        before_(plan.steps.size()) {}

  absl::Status Run() {
    if (!CheckBuffers()) return absl::InternalError(error_);
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      index_ = static_cast<int>(i);
      if (!CheckOrder() || !CheckStep()) break;
    }
    if (error_.empty()) CheckPairs();
    if (error_.empty()) CheckOutputs();
    if (error_.empty()) CheckCosts();
    if (error_.empty()) return absl::OkStatus();
    return absl::InternalError(error_);
  }

 private:
  const Step& step() const { return plan_.steps[index_]; }
  bool Fail(absl::string_view what) {
    if (error_.empty()) error_ = absl::StrCat("step ", index_, ": ", what);
    return false;
  }

  bool CheckBuffers() {
    for (const Buffer& buffer : plan_.buffers) {
      if (buffer.device < 0 || buffer.device >= plan_.devices) {
        return Fail("no such device");
      }
      if (buffer.slice.tokens.step < 1) return Fail("no such tokens");
    }
    return true;
  }

  // Notes all steps that have happened before this one.
  bool CheckOrder() {
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

  bool CheckStep() {
    if (const auto* upload = std::get_if<Upload>(&step().what)) {
      return Writes(upload->to, upload->slice);
    }
    if (const auto* pull = std::get_if<Pull>(&step().what)) {
      if (pull->peer == step().device) return Fail("pulls from itself");
      for (const Pull::Item& item : pull->items) {
        if (!Reads(item.from, item.slice, pull->peer) ||
            !Writes(item.to, item.slice)) {
          return false;
        }
        const Buffer& from = plan_.buffers[item.from];
        const Buffer& to = plan_.buffers[item.to];
        if (from.tensor != to.tensor || from.dtype != to.dtype) {
          return Fail("pulls another tensor");
        }
      }
      return true;
    }
    if (const auto* dot = std::get_if<Dot>(&step().what)) {
      return Reads(dot->d_o, dot->slice, step().device) &&
             Reads(dot->o, dot->slice, step().device) &&
             Writes(dot->delta, dot->slice);
    }
    if (const auto* sum = std::get_if<Sum>(&step().what)) {
      for (int term : sum->terms) {
        if (!Reads(term, sum->slice, step().device)) return false;
        if (plan_.buffers[term].dtype != DType::kF32) return Fail("rounded");
      }
      return Writes(sum->to, sum->slice);
    }
    if (const auto* download = std::get_if<Download>(&step().what)) {
      downloads_.push_back(index_);
      return Reads(download->from, download->slice, step().device);
    }
    for (const Part& part : std::get<Compute>(step().what).parts) {
      if (!CheckPart(part)) return false;
    }
    return true;
  }

  bool CheckPart(const Part& part) {
    if (part.rows.step < 1) return Fail("no such tokens");
    parts_.push_back(&part);
    const ProblemShape& shape = request_.ProblemOf(part.sequence);
    const Slice rows{part.sequence,
                     part.kv_head * shape.group(),
                     part.kv_heads * shape.group(),
                     part.rows,
                     {}};
    for (int i = 0; i < kTensorIds; ++i) {
      const TensorId id = static_cast<TensorId>(i);
      const std::optional<int>& buffer = part.buffers[id];
      if (!buffer.has_value()) continue;
      const auto inputs = RowInputs(request_.op);
      if (std::find(inputs.begin(), inputs.end(), id) == inputs.end()) {
        if (!Writes(*buffer, rows)) return false;
      } else if (id == TensorId::kBias) {
        if (!ReadsBias(part, *buffer, rows)) return false;
      } else if (!Reads(*buffer, rows, step().device)) {
        return false;
      }
    }
    for (const Columns& columns : part.columns) {
      const Slice slice{
          part.sequence, part.kv_head, part.kv_heads, columns.run, {}};
      if (!Reads(columns.k, slice, step().device) ||
          !Reads(columns.v, slice, step().device)) {
        return false;
      }
      for (const std::optional<int>& gradient : {columns.dk, columns.dv}) {
        if (gradient.has_value() && !Writes(*gradient, slice)) return false;
      }
    }
    return true;
  }

  bool ReadsBias(const Part& part, int buffer, Slice rows) {
    if (!request_.ProblemOf(part.sequence).bias_per_head) {
      rows.head = 0;
      rows.heads = 1;
    }
    if (!Reads(buffer, rows, step().device)) return false;
    const auto& have = plan_.buffers[buffer].slice.columns;
    bool same = have.size() == part.columns.size();
    for (size_t i = 0; same && i < have.size(); ++i) {
      same = have[i] == part.columns[i].run;
    }
    return same || Fail("a bias of other columns");
  }

  bool IsBuffer(int buffer) const {
    return buffer >= 0 && static_cast<size_t>(buffer) < plan_.buffers.size();
  }

  bool Writes(int buffer, const Slice& slice) {
    if (!IsBuffer(buffer)) return Fail("no such buffer");
    const Buffer& to = plan_.buffers[buffer];
    if (to.device != step().device) return Fail("writes to another device");
    if (!IsIn(slice, to.slice)) return Fail("writes beyond a buffer");
    const Area area = AreaOf(slice, index_);
    for (const Area& other : written_[buffer]) {
      if (Shared(area, other) > 0) return Fail("writes what was written");
    }
    written_[buffer].push_back(area);
    return true;
  }

  bool Reads(int buffer, const Slice& slice, int device) {
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
    return there == area.size() || Fail("reads what need not be there");
  }

  static bool IsIn(const Slice& slice, const Slice& whole) {
    return slice.sequence == whole.sequence && slice.tokens.step >= 1 &&
           plan::Run{whole.head, whole.heads}.Has({slice.head, slice.heads}) &&
           whole.tokens.Has(slice.tokens);
  }

  // Each head's rows, cut where any part begins or ends: in each piece the
  // parts' columns must not overlap, and must hold all that are seen.
  void CheckPairs() {
    const auto sequences = static_cast<int32_t>(request_.sequences.size());
    for (int32_t i = 0; i < sequences; ++i) {
      const int64_t heads = request_.ProblemOf(i).kv_heads;
      for (int64_t head = 0; head < heads; ++head) {
        std::vector<const Part*> parts;
        std::vector<plan::Run> ends;
        for (const Part* part : parts_) {
          if (part->sequence != i || head < part->kv_head ||
              head >= part->kv_head + part->kv_heads) {
            continue;
          }
          parts.push_back(part);
          ends.push_back(part->rows);
        }
        const RowIntervals& sees = request_.sequences[i].sees;
        for (const plan::Run& rows : CutAtEnds({0, sees.rows}, ends)) {
          CheckRows(sees, rows, parts);
        }
      }
    }
  }

  void CheckRows(const RowIntervals& sees, const plan::Run& rows,
                 const std::vector<const Part*>& parts) {
    const plan::Run needed = Needed(sees, rows);
    std::vector<plan::Run> have;
    for (const Part* part : parts) {
      if (!part->rows.Has(rows)) continue;
      for (const Columns& columns : part->columns) {
        const plan::Run run = Common(needed, columns.run);
        if (!run.empty()) have.push_back(run);
      }
    }
    int64_t count = 0;
    for (size_t i = 0; i < have.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!Common(have[i], have[j]).empty()) Fail("a pair is computed twice");
      }
      count += have[i].count;
    }
    if (count < needed.count) Fail("a pair is left out");
  }

  void CheckOutputs() {
    for (size_t i = 0; i < request_.sequences.size(); ++i) {
      const SequenceShape& sequence = request_.sequences[i];
      const ProblemShape& shape = request_.ProblemOf(sequence);
      for (int t = 0; t < kTensorIds; ++t) {
        const TensorId id = static_cast<TensorId>(t);
        if (!shape.outputs[id].has_value()) continue;
        const bool columns = HasColumns(id);
        CheckSent(static_cast<int32_t>(i), id,
                  {0,
                   columns ? shape.kv_heads : shape.q_heads,
                   {0, columns ? sequence.sees.columns : sequence.sees.rows}});
      }
    }
  }

  void CheckSent(int32_t sequence, TensorId id, const Area& all) {
    std::vector<Area> sent;
    int64_t there = 0;
    for (int step : downloads_) {
      const Download& download = std::get<Download>(plan_.steps[step].what);
      const Buffer& from = plan_.buffers[download.from];
      if (from.tensor != id || from.slice.sequence != sequence) continue;
      if (from.dtype != *request_.ProblemOf(sequence).outputs[id]) {
        Fail("sends a result of another type");
      }
      const Area area = AreaOf(download.slice);
      for (const Area& other : sent) {
        if (Shared(area, other) > 0) Fail("a result is sent twice");
      }
      sent.push_back(area);
      there += Shared(area, all);
    }
    if (there != all.size()) {
      Fail(absl::StrCat("part of ", TensorName(id), " is not sent"));
    }
  }

  void CheckCosts() {
    // Counted anew from the steps, and from the buffers.
    std::vector<PlanCost::Device> costs(plan_.devices);
    for (const Buffer& buffer : plan_.buffers) {
      const int64_t bytes =
          SliceBytes(request_, buffer.tensor, buffer.dtype, buffer.slice);
      costs[buffer.device].memory_bytes +=
          (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    }
    double flops = 0, all_flops = 0;
    for (const Step& step : plan_.steps) {
      if (const auto* pull = std::get_if<Pull>(&step.what)) {
        for (const Pull::Item& item : pull->items) {
          const Buffer& to = plan_.buffers[item.to];
          costs[step.device].pulled_bytes +=
              SliceBytes(request_, to.tensor, to.dtype, item.slice);
        }
      }
    }
    for (int device = 0; device < plan_.devices; ++device) {
      const PlanCost::Device& cost = plan_.cost.devices[device];
      if (cost.memory_bytes != costs[device].memory_bytes ||
          cost.pulled_bytes != costs[device].pulled_bytes) {
        Fail("costs are wrong");
      }
      flops += cost.flops;
    }
    for (const SequenceShape& sequence : request_.sequences) {
      all_flops += FlopsOf(request_, sequence);
    }
    if (std::abs(flops - all_flops) > 1e-9 * all_flops) {
      Fail("pairs are not all computed once");
    }
  }

  const PlanRequest& request_;
  const Plan& plan_;
  int index_ = 0;
  std::string error_;
  std::vector<std::vector<Area>> written_;  // by buffer
  std::vector<std::vector<bool>> before_;   // by step: which come before
  std::vector<const Part*> parts_;
  std::vector<int> downloads_;
};

}  // namespace

absl::Status Validate(const PlanRequest& request, const Plan& plan) {
  return Validator(request, plan).Run();
}

}  // namespace attnd::plan
