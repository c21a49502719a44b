#include "kernels/plan/validate.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/validate_parts.h"
#include "kernels/plan/validate_trace.h"

namespace attnd::plan {
namespace {

class Validator : private StepTrace {
 public:
  Validator(const PlanRequest& request, const Plan& plan)
      : StepTrace(plan), request_(request) {}

  absl::Status Run() {
    const std::string error = FindFault();
    if (error.empty()) return absl::OkStatus();
    return absl::InternalError(error);
  }

 private:
  std::string FindFault() {
    if (!CheckBuffers()) return error();
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (!Begin(static_cast<int>(i)) || !CheckStep()) return error();
    }
    CheckReuse();
    if (!error().empty()) return error();
    std::string fault = FaultOfPairs(request_, parts_);
    if (!fault.empty()) return fault;
    CheckOutputs();
    if (!error().empty()) return error();
    return FaultOfCosts(request_, plan_);
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
      downloads_.push_back(index());
      return Reads(download->from, download->slice, step().device) &&
             (request_.op == Op::kBackward || SendsAll(*download));
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
        if (!Writes(*buffer, rows, &part)) return false;
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
    return request_.op == Op::kBackward || CheckState(part, rows);
  }

  // Of what a part of a forward merges with.
  bool CheckState(const Part& part, const Slice& rows) {
    const Part* before = nullptr;
    if (part.before.has_value()) {
      const State& state = *part.before;
      if (state.o.has_value() != part.buffers[TensorId::kO].has_value()) {
        return Fail("merges O with no O");
      }
      before = WriterOf(state.lse, TensorId::kLse, rows);
      if (before == nullptr) return false;
      if (state.o.has_value() &&
          WriterOf(*state.o, TensorId::kO, rows) != before) {
        return Fail("O and LSE of two states");
      }
    }
    return merged_.Add(part, before) || Fail("merges the same columns twice");
  }

  // The part that has written these rows of a state.
  const Part* WriterOf(int buffer, TensorId id, const Slice& rows) {
    if (!Reads(buffer, rows, step().device)) return nullptr;
    const Buffer& state = plan_.buffers[buffer];
    const Area area = AreaOf(rows);
    for (const Area& other : written(buffer)) {
      if (state.tensor != id || state.dtype != DType::kF32) break;
      if (Shared(area, other) == area.size()) return other.part;
    }
    Fail("a state that no part has written");
    return nullptr;
  }

  // Whether all that a forward sends is over all columns that its rows see.
  bool SendsAll(const Download& download) {
    const Slice& slice = download.slice;
    const RowIntervals& sees = request_.sequences[slice.sequence].sees;
    for (const Area& area : written(download.from)) {
      if (Shared(area, AreaOf(slice)) == 0) continue;
      if (area.part == nullptr ||
          !merged_.HasAll(*area.part, sees,
                          Common(area.tokens, slice.tokens))) {
        return Fail("sends what is over some columns alone");
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

  const PlanRequest& request_;
  std::vector<const Part*> parts_;
  MergedColumns merged_;
  std::vector<int> downloads_;
};

}  // namespace

absl::Status Validate(const PlanRequest& request, const Plan& plan) {
  return Validator(request, plan).Run();
}

}  // namespace attnd::plan
