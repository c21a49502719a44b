// `gather` of rows, backward: K, V, dK and dV stay where they are. A device
// fetches Q, dO, LSE and delta of the rows that see its columns, a section of
// heads at a time, and computes its columns' gradients to their end; and of dQ
// a term for each of those rows, which their owner fetches and sums up, while
// the next section is computed.

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

// What a device fetches of rows that see its columns.
constexpr TensorId kFetchedRows[] = {TensorId::kQ, TensorId::kDO,
                                     TensorId::kLse, TensorId::kDelta,
                                     TensorId::kDLse};

class RowsGather : private GatherPlan {
 public:
  RowsGather(const PlanRequest& request, int devices, const Sections& sections)
      : GatherPlan(request, devices, sections) {}

  Plan Make() {
    ForEachPlace([this](int device, int32_t i) { LoadColumns(device, i); });
    ForEachPlace([this](int device, int32_t i) { FindRows(device, i); });
    for (int section = 0; section < sections_; ++section) {
      ForEachPlace(
          [&](int device, int32_t i) { LoadRows(device, i, section); });
    }
    ForEachSection([this](int device, int section) {
      ForEachPeer(device, [&](int peer) { Fetch(peer, device, section); });
    });
    ComputeAndSum(
        [this](int device, int section) { ComputeSection(device, section); },
        [this](int device, int section) { SumSection(device, section); });
    Store();
    return Finish("columns stay, rows");
  }

 private:
  // A buffer of some rows of a section's heads on one device, and the steps
  // that bring the device's own rows, and all.
  struct Fetched {
    int buffer = -1;
    Steps own, all;
  };
  // One device's own columns of a sequence, in one run.
  struct Owned {
    Run run;
    Columns columns;
    Steps loaded;
  };
  // What there is of one sequence on one device.
  struct Place {
    std::vector<Owned> owned;
    Run seeing;                           // rows that see any of them
    Run rows;                             // those, and the device's own
    std::vector<std::pair<Run, int>> dq;  // own rows, and the results' buffer
    Steps computed;                       // by section
    Steps summed;
  };
  // A section's buffers on one device.
  struct Section {
    PerTensor<std::optional<Fetched>> inputs;
    std::optional<int> bias;
    Steps bias_loaded;
    std::optional<int> dq;  // the device's term
    int step = -1;
  };

  template <class Do>
  void ForEachPlace(Do todo) {
    ForEachDevice([&](int device) {
      for (int32_t i = 0; i < sequences(); ++i) todo(device, i);
    });
  }
  Place& PlaceOf(int device, int32_t i) { return places_[{device, i}]; }
  Section& SectionOf(int device, int32_t i, int section) {
    return parts_[{device, i, section}];
  }

  void LoadColumns(int device, int32_t i) {
    const ProblemShape& shape = request().ProblemOf(i);
    for (const Run& run : placings_[i].columns[device]) {
      Owned owned;
      owned.run = owned.columns.run = run;
      const Slice all = builder_.ColumnsOf(i, 0, shape.kv_heads, run);
      const auto load = [&](TensorId id) {
        const int buffer =
            builder_.NewBuffer(device, id, *shape.inputs[id], all);
        builder_.BringColumns(buffer, all, owned.loaded);
        return buffer;
      };
      owned.columns.k = load(TensorId::kK);
      owned.columns.v = load(TensorId::kV);
      const auto gradient = [&](TensorId id) -> std::optional<int> {
        if (!shape.outputs[id].has_value()) return std::nullopt;
        return builder_.NewBuffer(device, id, *shape.outputs[id], all);
      };
      owned.columns.dk = gradient(TensorId::kDK);
      owned.columns.dv = gradient(TensorId::kDV);
      PlaceOf(device, i).owned.push_back(std::move(owned));
    }
  }

  void FindRows(int device, int32_t i) {
    const RowIntervals& sees = request().sequences[i].sees;
    const ProblemShape& shape = request().ProblemOf(i);
    Place& place = PlaceOf(device, i);
    for (const Owned& owned : place.owned) {
      place.seeing = Hull(place.seeing, Seeing(sees, owned.run));
    }
    place.rows = place.seeing;
    for (const Run& own : placings_[i].rows[device]) {
      place.rows = Hull(place.rows, own);
      if (!shape.outputs[TensorId::kDQ].has_value()) continue;
      place.dq.emplace_back(
          own, builder_.NewBuffer(device, TensorId::kDQ,
                                  *shape.outputs[TensorId::kDQ],
                                  builder_.RowsOf(i, 0, shape.kv_heads, own)));
    }
  }

  // The device's own rows of what every device fetches; delta is computed where
  // it was not given.
  void LoadRows(int device, int32_t i, int section) {
    const HeadRange heads = Heads(i, section);
    if (heads.heads == 0) return;
    const ProblemShape& shape = request().ProblemOf(i);
    Section& part = SectionOf(device, i, section);
    const auto rows_of = [&](const Run& rows) {
      return builder_.RowsOf(i, heads.head, heads.heads, rows);
    };
    const Run& all = PlaceOf(device, i).rows;
    for (const TensorId id : {TensorId::kQ, TensorId::kDO, TensorId::kLse,
                              TensorId::kDelta, TensorId::kDLse}) {
      const bool dots = id == TensorId::kDelta && !shape.inputs[id].has_value();
      if (!dots && !shape.inputs[id].has_value()) continue;
      Fetched to;
      to.buffer = builder_.NewBuffer(
          device, id, dots ? DType::kF32 : *shape.inputs[id], rows_of(all));
      for (const Run& own : placings_[i].rows[device]) {
        to.own.push_back(dots ? DotRows(device, part, to.buffer, rows_of(own))
                              : builder_.UploadPart(to.buffer, rows_of(own)));
      }
      to.all = to.own;
      part.inputs[id] = std::move(to);
    }
    LoadBias(device, i, heads, part);
    if (shape.outputs[TensorId::kDQ].has_value()) {
      part.dq = builder_.NewBuffer(device, TensorId::kDQ, DType::kF32,
                                   rows_of(PlaceOf(device, i).seeing));
    }
  }

  int DotRows(int device, Section& part, int delta, const Slice& slice) {
    const int o = builder_.NewBuffer(
        device, TensorId::kO,
        *request().ProblemOf(slice.sequence).inputs[TensorId::kO], slice);
    const int loaded = builder_.UploadAll(o);
    const Fetched& d_o = *part.inputs[TensorId::kDO];
    Steps after = d_o.own;
    after.push_back(loaded);
    return builder_.Add(device, Dot{d_o.buffer, o, delta, slice}, after);
  }

  void LoadBias(int device, int32_t i, const HeadRange& heads, Section& part) {
    const auto& dtype = request().ProblemOf(i).inputs[TensorId::kBias];
    if (!dtype.has_value()) return;
    Runs columns;
    columns.reserve(PlaceOf(device, i).owned.size());
    for (const Owned& owned : PlaceOf(device, i).owned) {
      columns.push_back(owned.run);
    }
    part.bias =
        builder_.NewBuffer(device, TensorId::kBias, *dtype,
                           builder_.BiasOf(i, heads.head, heads.heads,
                                           PlaceOf(device, i).seeing, columns));
    part.bias_loaded.push_back(builder_.UploadAll(*part.bias));
  }

  void Fetch(int peer, int device, int section) {
    Pull pull;
    pull.peer = peer;
    Steps after;
    std::vector<Fetched*> fetched;
    for (int32_t i = 0; i < sequences(); ++i) {
      const HeadRange heads = Heads(i, section);
      if (heads.heads == 0) continue;
      for (const Run& theirs : placings_[i].rows[peer]) {
        const Run run = Common(PlaceOf(device, i).seeing, theirs);
        if (run.empty()) continue;
        for (const TensorId id : kFetchedRows) {
          auto& from = SectionOf(peer, i, section).inputs[id];
          auto& to = SectionOf(device, i, section).inputs[id];
          if (!to.has_value()) continue;
          pull.items.push_back(
              {from->buffer, to->buffer,
               builder_.RowsOf(i, heads.head, heads.heads, run)});
          after.insert(after.end(), from->own.begin(), from->own.end());
          fetched.push_back(&*to);
        }
      }
    }
    if (pull.items.empty()) return;
    const int step = builder_.Add(device, std::move(pull), after);
    for (Fetched* to : fetched) to->all.push_back(step);
  }

  void ComputeSection(int device, int section) {
    Compute compute;
    Steps after;
    const auto add = [&after](const Steps& steps) {
      after.insert(after.end(), steps.begin(), steps.end());
    };
    std::vector<int32_t> computed;
    for (int32_t i = 0; i < sequences(); ++i) {
      const HeadRange heads = Heads(i, section);
      const Place& place = PlaceOf(device, i);
      if (heads.heads == 0 || place.owned.empty()) continue;
      const Section& from = SectionOf(device, i, section);
      Part part{i, heads.head, heads.heads, place.seeing};
      for (const Owned& owned : place.owned) {
        part.columns.push_back(owned.columns);
        add(owned.loaded);
      }
      for (int id = 0; id < kTensorIds; ++id) {
        const auto& input = from.inputs[static_cast<TensorId>(id)];
        if (!input.has_value()) continue;
        part.buffers[static_cast<TensorId>(id)] = input->buffer;
        add(input->all);
      }
      part.buffers[TensorId::kBias] = from.bias;
      add(from.bias_loaded);
      part.buffers[TensorId::kDQ] = from.dq;
      compute.parts.push_back(std::move(part));
      computed.push_back(i);
    }
    if (compute.parts.empty()) return;
    const int step = builder_.Add(device, std::move(compute), after);
    for (int32_t i : computed) {
      SectionOf(device, i, section).step = step;
      PlaceOf(device, i).computed.push_back(step);
    }
  }

  void SumSection(int device, int section) {
    std::vector<Total> totals;
    std::vector<int32_t> of;
    for (int32_t i = 0; i < sequences(); ++i) {
      const HeadRange heads = Heads(i, section);
      if (heads.heads == 0) continue;
      for (const auto& [run, result] : PlaceOf(device, i).dq) {
        totals.push_back({result,
                          builder_.RowsOf(i, heads.head, heads.heads, run),
                          TermsOf(i, section)});
        of.push_back(i);
      }
    }
    const std::vector<Steps> summed = SumTerms(device, totals, builder_);
    for (size_t n = 0; n < of.size(); ++n) {
      Steps& all = PlaceOf(device, of[n]).summed;
      all.insert(all.end(), summed[n].begin(), summed[n].end());
    }
  }

  // Those of dQ, in the order of devices.
  std::vector<Term> TermsOf(int32_t i, int section) {
    std::vector<Term> terms;
    for (int device = 0; device < builder_.devices(); ++device) {
      const Section& from = SectionOf(device, i, section);
      if (from.step < 0 || !from.dq.has_value()) continue;
      terms.push_back({*from.dq, from.step});
    }
    return terms;
  }

  void Store() {
    ForEachPlace([this](int device, int32_t i) {
      const Place& place = PlaceOf(device, i);
      for (const Owned& owned : place.owned) {
        for (const std::optional<int>& gradient :
             {owned.columns.dk, owned.columns.dv}) {
          if (gradient.has_value()) {
            builder_.DownloadAll(*gradient, place.computed);
          }
        }
      }
      for (const auto& [run, result] : place.dq) {
        builder_.DownloadAll(result, place.summed);
      }
    });
  }

  std::map<std::pair<int, int32_t>, Place> places_;  // by device and sequence
  std::map<std::tuple<int, int32_t, int>, Section> parts_;  // and section
};

}  // namespace

Plan GatherRows(const PlanRequest& request, int devices,
                const Sections& sections) {
  return RowsGather(request, devices, sections).Make();
}

}  // namespace attnd::plan
