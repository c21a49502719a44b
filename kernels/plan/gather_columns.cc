// `gather` of columns, forward and backward: every device has some tokens of
// each sequence, computes the rows among them, and fetches the other columns
// that they see, a section of heads at a time. A row's columns lie in order in
// one buffer, as they do on one device, so that a forward's results have the
// same bits, and backward has dQ at once. Of dK and dV each run of rows has a
// term, which the device that has the columns fetches and adds up while the
// next section is computed.

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/plan/gather.h"
#include "kernels/plan/gather_plan.h"
#include "kernels/plan/term_sums.h"

namespace attnd::plan {
namespace {

using Steps = std::vector<int>;

// K and V of a section's heads of a sequence on one device: its own columns,
// and what it fetches.
struct SectionColumns {
  int k = -1, v = -1;
  Steps own, all;  // the steps that bring its own, and all
};

class ColumnsGather : private GatherPlan {
 public:
  ColumnsGather(const PlanRequest& request, int devices,
                const Sections& sections)
      : GatherPlan(request, devices, sections),
        needed_(devices, std::vector<Run>(request.sequences.size())),
        rows_of_(request.sequences.size()) {}

  Plan Make() {
    ForEachDevice([this](int device) { LoadRows(device); });
    ForEachDevice([this](int device) { PlaceGradients(device); });
    ForEachSection(
        [this](int device, int section) { LoadColumns(device, section); });
    ForEachSection([this](int device, int section) {
      ForEachPeer(device, [&](int peer) { Fetch(peer, device, section); });
    });
    ComputeAndSum(
        [this](int device, int section) { ComputeSection(device, section); },
        [this](int device, int section) { SumSection(device, section); });
    Store();
    return Finish("rows stay, columns");
  }

 private:
  // One run of rows on its device.
  struct Rows {
    int device = 0;
    int32_t sequence = 0;
    Run run;
    Run needed = {};  // columns
    PerTensor<std::optional<int>> buffers = {};
    std::vector<int> outputs = {};
    Steps loaded = {}, computed = {};
    PerTensor<std::vector<Term>> terms = {};  // of dK and dV, by section
  };
  // dK or dV of one run of columns on its device.
  struct Gradient {
    int device = 0;
    int32_t sequence = 0;
    TensorId tensor = TensorId::kDK;
    Run run;
    int buffer = 0;
    Steps summed = {};
  };
  using Key = std::tuple<int, int32_t, int>;  // device, sequence, section

  Slice ColumnsOf(int32_t i, int section, const Run& run) const {
    const HeadRange heads = Heads(i, section);
    return builder_.ColumnsOf(i, heads.head, heads.heads, run);
  }

  void LoadRows(int device) {
    for (int32_t i = 0; i < sequences(); ++i) {
      for (const Run& run : placings_[i].rows[device]) {
        rows_of_[i].push_back(rows_.size());
        rows_.push_back(LoadRun(device, i, run));
        Run& needed = needed_[device][i];
        needed = Hull(needed, rows_.back().needed);
      }
    }
  }

  Rows LoadRun(int device, int32_t i, const Run& run) {
    const SequenceShape& sequence = request().sequences[i];
    const ProblemShape& shape = request().ProblemOf(sequence);
    Rows rows{device, i, run};
    rows.needed =
        Widen(Needed(sequence.sees, run), sequence.sees.columns, sequence.unit);
    for (TensorId id : RowInputs(request().op)) {
      if (!shape.inputs[id].has_value()) continue;
      const int buffer = builder_.NewBuffer(
          device, id, *shape.inputs[id],
          id == TensorId::kBias
              ? builder_.BiasOf(i, 0, shape.kv_heads, run, {rows.needed})
              : builder_.RowsOf(i, 0, shape.kv_heads, run));
      rows.loaded.push_back(builder_.UploadAll(buffer));
      rows.buffers[id] = buffer;
    }
    for (TensorId id : RowOutputs(request().op)) {
      if (!shape.outputs[id].has_value()) continue;
      const int buffer =
          builder_.NewBuffer(device, id, *shape.outputs[id],
                             builder_.RowsOf(i, 0, shape.kv_heads, run));
      rows.buffers[id] = buffer;
      rows.outputs.push_back(buffer);
    }
    return rows;
  }

  void PlaceGradients(int device) {
    for (int32_t i = 0; i < sequences(); ++i) {
      const ProblemShape& shape = request().ProblemOf(i);
      for (const Run& run : placings_[i].columns[device]) {
        for (const TensorId id : {TensorId::kDK, TensorId::kDV}) {
          if (!shape.outputs[id].has_value()) continue;
          const int buffer =
              builder_.NewBuffer(device, id, *shape.outputs[id],
                                 builder_.ColumnsOf(i, 0, shape.kv_heads, run));
          gradients_.push_back({device, i, id, run, buffer});
        }
      }
    }
  }

  void LoadColumns(int device, int section) {
    for (int32_t i = 0; i < sequences(); ++i) {
      if (Heads(i, section).heads == 0) continue;
      Run all = needed_[device][i];
      for (const Run& own : placings_[i].columns[device]) all = Hull(all, own);
      SectionColumns& to = columns_[{device, i, section}];
      const auto load = [&](TensorId id) {
        const int buffer =
            builder_.NewBuffer(device, id, *request().ProblemOf(i).inputs[id],
                               ColumnsOf(i, section, all));
        for (const Run& own : placings_[i].columns[device]) {
          builder_.BringColumns(buffer, ColumnsOf(i, section, own), to.own);
        }
        return buffer;
      };
      to.k = load(TensorId::kK);
      to.v = load(TensorId::kV);
      to.all = to.own;
    }
  }

  void Fetch(int peer, int device, int section) {
    Pull pull;
    pull.peer = peer;
    Steps after;
    std::vector<SectionColumns*> fetched;
    for (int32_t i = 0; i < sequences(); ++i) {
      if (Heads(i, section).heads == 0) continue;
      for (const Run& theirs : placings_[i].columns[peer]) {
        const Run run = Common(needed_[device][i], theirs);
        if (run.empty()) continue;
        const SectionColumns& from = columns_[{peer, i, section}];
        SectionColumns& to = columns_[{device, i, section}];
        const Slice slice = ColumnsOf(i, section, run);
        pull.items.push_back({from.k, to.k, slice});
        pull.items.push_back({from.v, to.v, slice});
        after.insert(after.end(), from.own.begin(), from.own.end());
        fetched.push_back(&to);
      }
    }
    if (pull.items.empty()) return;
    const int step = builder_.Add(device, std::move(pull), after);
    for (SectionColumns* to : fetched) to->all.push_back(step);
  }

  void ComputeSection(int device, int section) {
    Compute compute;
    Steps after;
    std::vector<Rows*> computed;
    for (Rows& rows : rows_) {
      if (rows.device != device) continue;
      const HeadRange heads = Heads(rows.sequence, section);
      if (heads.heads == 0) continue;
      const SectionColumns& kv = columns_[{device, rows.sequence, section}];
      Part part{rows.sequence, heads.head, heads.heads, rows.run};
      Columns columns{rows.needed, kv.k, kv.v};
      columns.dk = NewTerm(rows, TensorId::kDK, section);
      columns.dv = NewTerm(rows, TensorId::kDV, section);
      part.columns.push_back(columns);
      part.buffers = rows.buffers;
      compute.parts.push_back(std::move(part));
      for (const Steps* steps :
           {static_cast<const Steps*>(&rows.loaded), &kv.all}) {
        after.insert(after.end(), steps->begin(), steps->end());
      }
      computed.push_back(&rows);
    }
    if (compute.parts.empty()) return;
    const int step = builder_.Add(device, std::move(compute), after);
    for (Rows* rows : computed) {
      rows->computed.push_back(step);
      for (const TensorId id : {TensorId::kDK, TensorId::kDV}) {
        if (!rows->terms[id].empty()) rows->terms[id][section].step = step;
      }
    }
  }

  // Of a section's heads of dK or dV, where that is wanted.
  std::optional<int> NewTerm(Rows& rows, TensorId id, int section) {
    const ProblemShape& shape = request().ProblemOf(rows.sequence);
    if (!shape.outputs[id].has_value()) return std::nullopt;
    const int buffer =
        builder_.NewBuffer(rows.device, id, DType::kF32,
                           ColumnsOf(rows.sequence, section, rows.needed));
    rows.terms[id].resize(sections_);
    rows.terms[id][section].buffer = buffer;
    return buffer;
  }

  void SumSection(int device, int section) {
    std::vector<Total> totals;
    std::vector<Gradient*> of;
    for (Gradient& gradient : gradients_) {
      const int32_t i = gradient.sequence;
      if (gradient.device != device || Heads(i, section).heads == 0) continue;
      Total total{gradient.buffer, ColumnsOf(i, section, gradient.run), {}};
      for (const size_t rows : rows_of_[i]) {
        total.terms.push_back(rows_[rows].terms[gradient.tensor][section]);
      }
      totals.push_back(std::move(total));
      of.push_back(&gradient);
    }
    const std::vector<Steps> summed = SumTerms(device, totals, builder_);
    for (size_t i = 0; i < of.size(); ++i) {
      of[i]->summed.insert(of[i]->summed.end(), summed[i].begin(),
                           summed[i].end());
    }
  }

  void Store() {
    for (const Rows& rows : rows_) {
      for (int output : rows.outputs) {
        builder_.DownloadAll(output, rows.computed);
      }
    }
    for (const Gradient& gradient : gradients_) {
      builder_.DownloadAll(gradient.buffer, gradient.summed);
    }
  }

  // By device and sequence: the columns that any of the device's rows see.
  std::vector<std::vector<Run>> needed_;
  std::vector<Rows> rows_;
  std::vector<std::vector<size_t>> rows_of_;  // in rows_, by sequence
  std::vector<Gradient> gradients_;
  std::map<Key, SectionColumns> columns_;
};

}  // namespace

Plan GatherColumns(const PlanRequest& request, int devices,
                   const Sections& sections) {
  return ColumnsGather(request, devices, sections).Make();
}

}  // namespace attnd::plan
