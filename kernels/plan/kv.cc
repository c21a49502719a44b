// `kv`: every device has all rows of a sequence, and some of its columns.
// Forward: it computes what the rows have over these, O and LSE in f32, and one
// of the devices fetches and merges that of all. Backward: dK and dV are there
// at once, and dQ is a sum of a term of each device.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/term_fetch.h"
#include "kernels/plan/term_sums.h"

namespace attnd::plan {
namespace {

class Kv {
 public:
  Kv(const PlanRequest& request, int devices)
      : builder_(request, devices, PlanKind::kKv) {}

  Plan Make() {
    for (int32_t i = 0; i < sequences(); ++i) Place(i);
    for (int device = 0; device < builder_.devices(); ++device) {
      ComputeShares(device);
    }
    for (int device = 0; device < builder_.devices(); ++device) {
      if (request().op == Op::kForward) {
        MergeTermsOn(device);
      } else {
        SumTermsOn(device);
      }
    }
    StoreShares();
    for (const Unseen& unseen : unseen_) StoreZeros(unseen);
    return builder_.Finish(Why());
  }

 private:
  // One device's columns of a sequence, of which its rows see some.
  struct Share {
    int device = 0;
    int32_t sequence = 0;
    Run columns;
    PerTensor<std::optional<int>> results = {};  // of rows
    std::vector<int> outputs = {};  // buffers that are sent as they are
    int computed = -1;              // the step
  };
  // Columns that no row sees. They have gradients, too.
  struct Unseen {
    int device = 0;
    int32_t sequence = 0;
    Run columns;
  };
  struct Sequence {
    std::vector<size_t> shares;  // in the order of columns
    int device = 0;              // which puts results together
    // Whether there is anything to put together: a share that is alone has the
    // results.
    bool has_terms() const { return shares.size() != 1; }
  };

  const PlanRequest& request() const { return builder_.request(); }
  int32_t sequences() const {
    return static_cast<int32_t>(request().sequences.size());
  }
  Slice AllRows(int32_t i) const {
    return builder_.RowsOf(i, 0, request().ProblemOf(i).kv_heads,
                           {0, request().sequences[i].sees.rows});
  }
  Slice AllHeads(int32_t i, const Run& columns) const {
    return builder_.ColumnsOf(i, 0, request().ProblemOf(i).kv_heads, columns);
  }

  // The next sequence begins on the next device, so that not the same ones have
  // nothing of all short sequences, and results of many are put together on all
  // devices. Where columns lie on devices already they stay there.
  void Place(int32_t i) {
    const RowIntervals& sees = request().sequences[i].sees;
    const Run needed = Needed(sees, {0, sees.rows});
    const int devices = builder_.devices();
    Sequence& sequence = all_.emplace_back();
    sequence.device = i % devices;
    const std::vector<Runs> cut =
        CutByRanges(sees.columns, devices, request().sequences[i].unit);
    for (int part = 0; part < devices; ++part) {
      const int device = request().inputs == InputsLie::kByRanges
                             ? part
                             : (i + part) % devices;
      for (const Run& run : cut[part]) {
        const Run seen = Common(run, needed);
        if (seen.empty()) {
          unseen_.push_back({device, i, run});
          continue;
        }
        if (sequence.shares.empty()) sequence.device = device;
        sequence.shares.push_back(shares_.size());
        // Backward gives all of a device's columns gradients.
        shares_.push_back(
            {device, i, request().op == Op::kForward ? seen : run});
      }
    }
  }

  void ComputeShares(int device) {
    Compute compute;
    std::vector<int> loaded;
    for (Share& share : shares_) {
      if (share.device != device) continue;
      compute.parts.push_back(Load(share, loaded));
    }
    if (compute.parts.empty()) return;
    const int step =
        builder_.Add(device, std::move(compute), std::move(loaded));
    for (Share& share : shares_) {
      if (share.device == device) share.computed = step;
    }
  }

  Part Load(Share& share, std::vector<int>& loaded) {
    const int32_t i = share.sequence;
    const ProblemShape& shape = request().ProblemOf(i);
    const auto load = [&](TensorId id, Slice slice) {
      const int buffer = builder_.NewBuffer(share.device, id, *shape.inputs[id],
                                            std::move(slice));
      if (HasColumns(id)) {
        builder_.BringColumns(buffer, builder_.buffer(buffer).slice, loaded);
      } else {
        loaded.push_back(builder_.UploadAll(buffer));
      }
      return buffer;
    };
    const Slice rows = AllRows(i), kv = AllHeads(i, share.columns);
    Part part{i, 0, shape.kv_heads, rows.tokens};
    Columns columns{share.columns, load(TensorId::kK, kv),
                    load(TensorId::kV, kv)};
    for (const TensorId id : RowInputs(request().op)) {
      if (!shape.inputs[id].has_value()) continue;
      part.buffers[id] =
          load(id, id == TensorId::kBias
                       ? builder_.BiasOf(i, 0, shape.kv_heads, rows.tokens,
                                         {share.columns})
                       : rows);
    }
    AddResults(share);
    for (const TensorId id : RowOutputs(request().op)) {
      part.buffers[id] = share.results[id];
    }
    columns.dk = Gradient(TensorId::kDK, kv, share);
    columns.dv = Gradient(TensorId::kDV, kv, share);
    part.columns.push_back(columns);
    return part;
  }

  // Where rows have terms these are in f32, and O has none without LSE.
  void AddResults(Share& share) {
    const auto& wanted = request().ProblemOf(share.sequence).outputs;
    const bool is_term = all_[share.sequence].has_terms();
    for (const TensorId id : RowOutputs(request().op)) {
      const bool merges_by_it =
          is_term && id == TensorId::kLse && wanted[TensorId::kO].has_value();
      if (!wanted[id].has_value() && !merges_by_it) continue;
      share.results[id] = builder_.NewBuffer(
          share.device, id, is_term ? DType::kF32 : *wanted[id],
          AllRows(share.sequence));
      if (!is_term) share.outputs.push_back(*share.results[id]);
    }
  }

  std::optional<int> Gradient(TensorId id, const Slice& slice, Share& share) {
    const auto& wanted = request().ProblemOf(slice.sequence).outputs[id];
    if (!wanted.has_value()) return std::nullopt;
    share.outputs.push_back(
        builder_.NewBuffer(share.device, id, *wanted, slice));
    return share.outputs.back();
  }

  // Of one sequence on the device that puts its results together.
  struct Merging {
    int32_t sequence = 0;
    std::vector<size_t> os = {}, lses = {};  // in the fetch
  };

  void MergeTermsOn(int device) {
    TermFetch fetch(device, builder_);
    std::vector<Merging> merges;
    for (int32_t i = 0; i < sequences(); ++i) {
      const auto& wanted = request().ProblemOf(i).outputs;
      if (!PutsTogether(device, i) || (!wanted[TensorId::kO].has_value() &&
                                       !wanted[TensorId::kLse].has_value())) {
        continue;
      }
      Merging& merging = merges.emplace_back(Merging{i});
      for (const size_t term : all_[i].shares) {
        const Share& share = shares_[term];
        const auto bring = [&](TensorId id) {
          return fetch.Bring({*share.results[id], share.computed}, AllRows(i));
        };
        merging.lses.push_back(bring(TensorId::kLse));
        if (wanted[TensorId::kO].has_value()) {
          merging.os.push_back(bring(TensorId::kO));
        }
      }
    }
    fetch.PullAll();
    for (const Merging& merging : merges) AddMerge(device, merging, fetch);
  }

  void AddMerge(int device, const Merging& merging, const TermFetch& fetch) {
    const int32_t i = merging.sequence;
    const auto& wanted = request().ProblemOf(i).outputs;
    Merge merge;
    merge.slice = AllRows(i);
    std::vector<int> after;
    for (size_t t = 0; t < merging.lses.size(); ++t) {
      State& state = merge.terms.emplace_back();
      const auto add = [&](size_t number) {
        after.push_back(fetch.At(number).step);
        return fetch.At(number).buffer;
      };
      state.lse = add(merging.lses[t]);
      if (!merging.os.empty()) state.o = add(merging.os[t]);
    }
    const auto result = [&](TensorId id) -> std::optional<int> {
      if (!wanted[id].has_value()) return std::nullopt;
      return builder_.NewBuffer(device, id, *wanted[id], merge.slice);
    };
    const std::optional<int> o = merge.o = result(TensorId::kO);
    const std::optional<int> lse = merge.lse = result(TensorId::kLse);
    const int merged = builder_.Add(device, std::move(merge), std::move(after));
    for (const std::optional<int>& output : {o, lse}) {
      if (output.has_value()) builder_.DownloadAll(*output, {merged});
    }
  }

  void SumTermsOn(int device) {
    std::vector<Total> totals;
    for (int32_t i = 0; i < sequences(); ++i) {
      const auto& wanted = request().ProblemOf(i).outputs[TensorId::kDQ];
      if (!PutsTogether(device, i) || !wanted.has_value()) continue;
      Total& total = totals.emplace_back();
      total.slice = AllRows(i);
      total.buffer =
          builder_.NewBuffer(device, TensorId::kDQ, *wanted, total.slice);
      for (const size_t term : all_[i].shares) {
        const Share& share = shares_[term];
        total.terms.push_back({*share.results[TensorId::kDQ], share.computed});
      }
    }
    const auto summed = SumTerms(device, totals, builder_);
    for (size_t i = 0; i < totals.size(); ++i) {
      builder_.DownloadAll(totals[i].buffer, summed[i]);
    }
  }

  bool PutsTogether(int device, int32_t i) const {
    return all_[i].device == device && all_[i].has_terms() &&
           request().sequences[i].sees.rows > 0;
  }

  void StoreShares() {
    for (const Share& share : shares_) {
      for (const int output : share.outputs) {
        builder_.DownloadAll(output, {share.computed});
      }
    }
  }

  void StoreZeros(const Unseen& unseen) {
    for (const TensorId id : {TensorId::kDK, TensorId::kDV}) {
      const auto& wanted = request().ProblemOf(unseen.sequence).outputs[id];
      if (!wanted.has_value()) continue;
      const Slice slice = AllHeads(unseen.sequence, unseen.columns);
      const int zeros = builder_.NewBuffer(unseen.device, id, *wanted, slice);
      builder_.DownloadAll(
          zeros, {builder_.Add(unseen.device, Sum{{}, zeros, slice}, {})});
    }
  }

  std::string Why() const {
    int put_together = 0;
    for (const Sequence& sequence : all_) {
      if (sequence.shares.size() > 1) ++put_together;
    }
    return absl::StrCat("all rows on each device, columns shared out; ",
                        put_together, " of ", all_.size(), " sequences ",
                        request().op == Op::kForward ? "merged" : "summed up");
  }

  PlanBuilder builder_;
  std::vector<Sequence> all_;
  std::vector<Share> shares_;  // by sequence, in the order of columns
  std::vector<Unseen> unseen_;
};

}  // namespace

Plan MakeKv(const PlanRequest& request, int devices) {
  return Kv(request, devices).Make();
}

}  // namespace attnd::plan
