// Forward of `gather`: every device has some tokens of each sequence, computes
// the rows among them, and fetches the other columns that they see, a section
// of heads at a time. A row's columns lie in order in one buffer, as they do on
// one device, so that its results have the same bits.

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/plan/gather.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {
namespace {

using Steps = std::vector<int>;

// K or V of a section's heads of a sequence on one device: its own columns, and
// what it fetches.
struct Gathered {
  int buffer = -1;
  Steps here;  // the steps that bring it
};

class Forward {
 public:
  Forward(const PlanRequest& request, int devices, const Sections& sections)
      : builder_(request, devices, PlanKind::kGather),
        placings_(PlaceTokens(request, devices)),
        section_ends_(sections),
        sections_(static_cast<int>(sections.size())),
        needed_(devices, std::vector<Run>(request.sequences.size())) {}

  Plan Make() {
    ForEachDevice([this](int device) { LoadRows(device); });
    ForEachSection(
        [this](int device, int section) { LoadColumns(device, section); });
    ForEachSection([this](int device, int section) { Fetch(device, section); });
    ForEachSection(
        [this](int device, int section) { ComputeSection(device, section); });
    for (const Rows& rows : rows_) {
      for (int output : rows.outputs) {
        builder_.DownloadAll(output, rows.computed);
      }
    }
    return builder_.Finish(
        absl::StrCat("tokens in ", sections_, " sections of heads"), sections_,
        section_ends_.front());
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
  };
  // (device, sequence, section, whether of V)
  using Key = std::tuple<int, int32_t, int, bool>;

  const PlanRequest& request() const { return builder_.request(); }
  int32_t sequences() const {
    return static_cast<int32_t>(request().sequences.size());
  }
  template <class Do>
  void ForEachDevice(Do todo) {
    for (int device = 0; device < builder_.devices(); ++device) todo(device);
  }
  template <class Do>
  void ForEachSection(Do todo) {
    for (int section = 0; section < sections_; ++section) {
      ForEachDevice([&](int device) { todo(device, section); });
    }
  }

  void LoadRows(int device) {
    for (int32_t i = 0; i < sequences(); ++i) {
      for (const Run& run : placings_[i].rows[device]) {
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
    for (TensorId id : RowInputs(Op::kForward)) {
      if (!shape.inputs[id].has_value()) continue;
      const int buffer = builder_.NewBuffer(
          device, id, *shape.inputs[id],
          id == TensorId::kBias
              ? builder_.BiasOf(i, 0, shape.kv_heads, run, {rows.needed})
              : builder_.RowsOf(i, 0, shape.kv_heads, run));
      rows.loaded.push_back(builder_.UploadAll(buffer));
      rows.buffers[id] = buffer;
    }
    for (TensorId id : RowOutputs(Op::kForward)) {
      if (!shape.outputs[id].has_value()) continue;
      const int buffer =
          builder_.NewBuffer(device, id, *shape.outputs[id],
                             builder_.RowsOf(i, 0, shape.kv_heads, run));
      rows.buffers[id] = buffer;
      rows.outputs.push_back(buffer);
    }
    return rows;
  }

  void LoadColumns(int device, int section) {
    for (int32_t i = 0; i < sequences(); ++i) {
      const ProblemShape& shape = request().ProblemOf(i);
      const HeadRange heads = SectionHeads(shape, section_ends_, section);
      if (heads.heads == 0) continue;
      Run all = needed_[device][i];
      for (const Run& own : placings_[i].columns[device]) all = Hull(all, own);
      for (const TensorId id : {TensorId::kK, TensorId::kV}) {
        Gathered& to = gathered_[{device, i, section, id == TensorId::kV}];
        to.buffer = builder_.NewBuffer(
            device, id, *shape.inputs[id],
            builder_.ColumnsOf(i, heads.head, heads.heads, all));
        for (const Run& own : placings_[i].columns[device]) {
          to.here.push_back(builder_.UploadPart(
              to.buffer, builder_.ColumnsOf(i, heads.head, heads.heads, own)));
        }
      }
    }
  }

  // From the next device on, so that not all ask the same one at once.
  void Fetch(int device, int section) {
    for (int next = 1; next < builder_.devices(); ++next) {
      FetchFrom((device + next) % builder_.devices(), device, section);
    }
  }

  void FetchFrom(int peer, int device, int section) {
    Pull pull;
    pull.peer = peer;
    Steps after;
    std::vector<Gathered*> fetched;
    for (int32_t i = 0; i < sequences(); ++i) {
      const HeadRange heads =
          SectionHeads(request().ProblemOf(i), section_ends_, section);
      if (heads.heads == 0) continue;
      for (const Run& theirs : placings_[i].columns[peer]) {
        const Run run = Common(needed_[device][i], theirs);
        if (run.empty()) continue;
        for (const bool is_v : {false, true}) {
          const Gathered& from = gathered_[{peer, i, section, is_v}];
          Gathered& to = gathered_[{device, i, section, is_v}];
          pull.items.push_back(
              {from.buffer, to.buffer,
               builder_.ColumnsOf(i, heads.head, heads.heads, run)});
          const Steps own = OwnLoads(from, peer, i);
          after.insert(after.end(), own.begin(), own.end());
          fetched.push_back(&to);
        }
      }
    }
    if (pull.items.empty()) return;
    const int step = builder_.Add(device, std::move(pull), after);
    for (Gathered* to : fetched) to->here.push_back(step);
  }

  // The uploads among the steps that bring a device's buffer: they come first.
  Steps OwnLoads(const Gathered& gathered, int device, int32_t i) const {
    const size_t own = placings_[i].columns[device].size();
    return Steps(gathered.here.begin(), gathered.here.begin() + own);
  }

  void ComputeSection(int device, int section) {
    Compute compute;
    Steps after;
    std::vector<Rows*> computed;
    for (Rows& rows : rows_) {
      if (rows.device != device) continue;
      const HeadRange heads = SectionHeads(request().ProblemOf(rows.sequence),
                                           section_ends_, section);
      if (heads.heads == 0) continue;
      const Gathered& k = gathered_[{device, rows.sequence, section, false}];
      const Gathered& v = gathered_[{device, rows.sequence, section, true}];
      Part part{rows.sequence, heads.head, heads.heads, rows.run};
      part.columns.push_back({rows.needed, k.buffer, v.buffer});
      part.buffers = rows.buffers;
      compute.parts.push_back(std::move(part));
      for (const Steps* steps :
           {static_cast<const Steps*>(&rows.loaded), &k.here, &v.here}) {
        after.insert(after.end(), steps->begin(), steps->end());
      }
      computed.push_back(&rows);
    }
    if (compute.parts.empty()) return;
    const int step = builder_.Add(device, std::move(compute), after);
    for (Rows* rows : computed) rows->computed.push_back(step);
  }

  PlanBuilder builder_;
  const std::vector<Placing> placings_;  // by sequence
  const Sections section_ends_;
  const int sections_;
  // By device and sequence: the columns that any of the device's rows see.
  std::vector<std::vector<Run>> needed_;
  std::vector<Rows> rows_;
  std::map<Key, Gathered> gathered_;
};

}  // namespace

Plan GatherForward(const PlanRequest& request, int devices,
                   const Sections& sections) {
  return Forward(request, devices, sections).Make();
}

}  // namespace attnd::plan
