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
      if (pull->peer == step().device &&
          request_.inputs != InputsLie::kByRanges) {
        return Fail("pulls from itself");
      }
      for (const Pull::Item& item : pull->items) {
        if (!Reads(item.from, item.slice, pull->peer) ||
            !Writes(item.to, item.slice, {&item.from, 1})) {
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
      return Writes(sum->to, sum->slice, sum->terms);
    }
    if (const auto* merge = std::get_if<Merge>(&step().what)) {
      return CheckMerge(*merge);
    }
    if (const auto* download = std::get_if<Download>(&step().what)) {
      downloads_.push_back(index());
      return Reads(download->from, download->slice, step().device) &&
             SendsAll(*download);
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
        if (!WritesRows(part, id, rows)) return false;
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
      if (!WritesGradient(columns.dk, columns.dk_before, slice, {part.rows},
                          part) ||
          !WritesGradient(columns.dv, columns.dv_before, slice, {part.rows},
                          part)) {
        return false;
      }
    }
    return true;
  }

  // The results `id` of a part, over its columns, and those that it merges with
  // or adds to.
  bool WritesRows(const Part& part, TensorId id, const Slice& rows) {
    Runs columns;
    for (const Columns& of : part.columns) columns.push_back(of.run);
    if (request_.op == Op::kBackward) {
      return WritesGradient(part.buffers[id], part.dq_before, rows, columns,
                            part);
    }
    std::vector<int> before;
    if (part.before.has_value()) {
      if (!ReadsState(part, rows)) return false;
      before = {id == TensorId::kO ? *part.before->o : part.before->lse};
    }
    return Writes(*part.buffers[id], rows, before, columns, &part);
  }

  bool WritesGradient(const std::optional<int>& gradient,
                      const std::optional<int>& before, const Slice& slice,
                      const Runs& over, const Part& part) {
    if (!gradient.has_value()) {
      return !before.has_value() || Fail("adds to what is not wanted");
    }
    if (!before.has_value()) return Writes(*gradient, slice, {}, over, &part);
    return AddsTo(*before, *gradient, slice) &&
           Writes(*gradient, slice, {&*before, 1}, over, &part);
  }

  // What a part of a forward merges with.
  bool ReadsState(const Part& part, const Slice& rows) {
    const State& state = *part.before;
    if (state.o.has_value() != part.buffers[TensorId::kO].has_value()) {
      return Fail("merges O with no O");
    }
    const Part* before = WriterOf(state.lse, TensorId::kLse, rows);
    return before != nullptr &&
           (!state.o.has_value() ||
            WriterOf(*state.o, TensorId::kO, rows) == before ||
            Fail("O and LSE of two states"));
  }

  // The part that has written these rows of a state.
  const Part* WriterOf(int buffer, TensorId id, const Slice& rows) {
    if (!Reads(buffer, rows, step().device)) return nullptr;
    const Buffer& state = plan_.buffers[buffer];
    const Area area = AreaOf(rows);
    for (const Area& other : written(buffer)) {
      if (state.tensor != id || state.dtype != DType::kF32) break;
      if (Shared(area, other) < area.size()) continue;
      if (other.part != nullptr) return other.part;
    }
    Fail("a state that no part has written");
    return nullptr;
  }

  // What it writes is over all that its terms are over.
  bool CheckMerge(const Merge& merge) {
    std::vector<int> os, lses;
    for (const State& term : merge.terms) {
      if (!ReadsTerm(merge, term)) return false;
      if (merge.o.has_value()) os.push_back(*term.o);
      lses.push_back(term.lse);
    }
    return (!merge.o.has_value() || Writes(*merge.o, merge.slice, os)) &&
           (!merge.lse.has_value() || Writes(*merge.lse, merge.slice, lses));
  }

  bool ReadsTerm(const Merge& merge, const State& term) {
    const auto reads = [&](int buffer, TensorId id) {
      if (!Reads(buffer, merge.slice, step().device)) return false;
      const Buffer& state = plan_.buffers[buffer];
      return (state.tensor == id && state.dtype == DType::kF32) ||
             Fail("merges what is no state");
    };
    if (!reads(term.lse, TensorId::kLse)) return false;
    if (!merge.o.has_value()) return true;
    if (!term.o.has_value()) return Fail("merges O with no O");
    if (!reads(*term.o, TensorId::kO)) return false;
    const Area area = AreaOf(merge.slice);
    for (const Area& o : written(*term.o)) {
      for (const Area& lse : written(term.lse)) {
        if (Shared(o, area) > 0 && Shared(lse, area) > 0 &&
            Shared(o, lse) > 0 && o.over != lse.over) {
          return Fail("O and LSE of two states");
        }
      }
    }
    return true;
  }

  // Whether all that is sent is over all that it should be: what rows have over
  // the columns that they see, what columns have over the rows that see them.
  bool SendsAll(const Download& download) {
    const Slice& slice = download.slice;
    const RowIntervals& sees = request_.sequences[slice.sequence].sees;
    const bool by_columns = HasColumns(plan_.buffers[download.from].tensor);
    const plan::Run all{0, by_columns ? sees.rows : sees.columns};
    for (const Area& area : written(download.from)) {
      if (Shared(area, AreaOf(slice)) == 0) continue;
      const plan::Run tokens = Common(area.tokens, slice.tokens);
      const auto pairs = [&](const plan::Run& over) {
        return by_columns ? PairsOf(sees, over, tokens)
                          : PairsOf(sees, tokens, over);
      };
      double there = 0;
      for (const plan::Run& run : area.over) there += pairs(run);
      if (there < pairs(all)) {
        return Fail(absl::StrCat("sends what is over some ",
                                 by_columns ? "rows" : "columns", " alone"));
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
  std::vector<int> downloads_;
};

}  // namespace

absl::Status Validate(const PlanRequest& request, const Plan& plan) {
  return Validator(request, plan).Run();
}

}  // namespace attnd::plan
