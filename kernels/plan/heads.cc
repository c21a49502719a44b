// Whole K/V heads of whole sequences to devices. Nothing travels between them,
// but for a head that is cut by rows: its K and V go to each device that has
// some, and each of those has a term of its dK and dV.
//
// Where inputs lie on the host a device takes its heads in a few sections, of
// which one is computed while the next is brought and the one before is sent.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/plan_builder.h"
#include "kernels/plan/shares.h"
#include "kernels/plan/term_sums.h"

namespace attnd::plan {
namespace {

// So many sections at most, none of them smaller than this: a launch and its
// copies take some ten microseconds, and so do these bytes from the host.
constexpr int kMostSections = 4;
constexpr double kLeastBytes = 4 << 20;
// And some heads of a token lie apart on the host, where shorter runs are
// copied more slowly: by some per cent below the second, which is too much
// where little but copies takes time, and by far more below the first.
constexpr int64_t kLeastRowBytes = 512, kLeastCopiedRowBytes = 1024;

// What a K/V head of a share brings and sends, about.
double BytesOfHead(const PlanRequest& request, const Share& share) {
  const SequenceShape& sequence = request.sequences[share.sequence];
  const ProblemShape& shape = request.ProblemOf(sequence);
  const auto tensors = request.op == Op::kForward ? 1.0 : 2.0;
  return tensors * 2 * static_cast<double>(shape.head_dim + shape.value_dim) *
         static_cast<double>(share.rows.count * shape.group() +
                             sequence.sees.columns);
}

double FlopsOf(const PlanRequest& request, const Share& share) {
  const SequenceShape& sequence = request.sequences[share.sequence];
  const auto heads = static_cast<double>(request.ProblemOf(sequence).kv_heads);
  return FlopsOf(request, sequence) * static_cast<double>(share.kv_heads) /
         heads * static_cast<double>(share.rows.count) /
         static_cast<double>(std::max<int64_t>(sequence.sees.rows, 1));
}

int64_t LeastHeads(const PlanRequest& request, const Share& share,
                   int64_t row_bytes) {
  const ProblemShape& shape =
      request.ProblemOf(request.sequences[share.sequence]);
  const int64_t head_bytes = std::min(shape.head_dim, shape.value_dim) *
                             SizeOf(*shape.inputs[TensorId::kQ]);
  return std::max<int64_t>(1, row_bytes / std::max<int64_t>(head_bytes, 1));
}

// A device's shares in sections of about as many bytes. Only whole heads are
// divided.
std::vector<std::vector<Share>> SectionsOf(const PlanRequest& request,
                                           const std::vector<Share>& shares) {
  if (request.inputs != InputsLie::kOnHost) return {shares};
  double all = 0, flops = 0;
  for (const Share& share : shares) {
    all += BytesOfHead(request, share) * static_cast<double>(share.kv_heads);
    flops += FlopsOf(request, share);
  }
  const bool copies_most =
      all / request.rates.upload.bytes > flops / KernelRatesOf(request).flops;
  const int count = static_cast<int>(
      std::clamp(all / kLeastBytes, 1.0, double{kMostSections}));
  std::vector<std::vector<Share>> sections(count);
  int section = 0;
  double dealt = 0;
  for (Share rest : shares) {
    const double head = BytesOfHead(request, rest);
    while (rest.kv_heads > 0) {
      Share share = rest;
      if (section + 1 < count) {
        const double room = (section + 1) * all / count - dealt;
        share.kv_heads =
            std::clamp<int64_t>(std::llround(room / head), 0, rest.kv_heads);
        if (share.kv_heads > 0) {
          const int64_t least =
              LeastHeads(request, rest,
                         copies_most ? kLeastCopiedRowBytes : kLeastRowBytes);
          share.kv_heads = std::max(share.kv_heads, least);
          if (rest.kv_heads < share.kv_heads + least) {
            share.kv_heads = rest.kv_heads;
          }
        }
      }
      if (share.kv_heads == 0) {
        ++section;
        continue;
      }
      sections[section].push_back(share);
      dealt += head * static_cast<double>(share.kv_heads);
      rest.kv_head += share.kv_heads;
      rest.kv_heads -= share.kv_heads;
    }
  }
  std::erase_if(sections, [](const auto& some) { return some.empty(); });
  return sections;
}

class Heads {
 public:
  Heads(const PlanRequest& request, int devices)
      : builder_(request, devices, PlanKind::kHeads),
        shares_(ShareHeads(request, devices)) {}

  Plan Make() {
    std::vector<DevicePart> parts;
    int sections = 1;
    for (int device = 0; device < builder_.devices(); ++device) {
      const size_t before = parts.size();
      for (const auto& section : SectionsOf(request(), shares_[device])) {
        parts.push_back(LoadAll(device, section));
      }
      sections = std::max(sections, static_cast<int>(parts.size() - before));
    }
    for (DevicePart& part : parts) ComputeAll(part);
    for (const DevicePart& part : parts) StoreAll(part);
    SumCutHeads();
    return builder_.Finish(Why(), sections);
  }

 private:
  // What one device has to do, in one section.
  struct DevicePart {
    int device = 0;
    Compute compute;
    std::vector<int> loaded;
    std::vector<int> outputs;  // buffers to be sent as they are
    std::vector<int> terms;    // buffers of terms
    int step = -1;             // of `compute`
  };
  // dK or dV of one.
  struct CutHead {
    int device = 0;  // the first that has rows of it
    Slice slice;     // all columns
    TensorId tensor = TensorId::kDK;
    DType dtype = DType::kF32;
    std::vector<Term> terms;  // by device
  };

  const PlanRequest& request() const { return builder_.request(); }

  DevicePart LoadAll(int device, const std::vector<Share>& shares) {
    DevicePart part;
    part.device = device;
    for (const Share& share : shares) {
      part.compute.parts.push_back(Load(share, part));
    }
    return part;
  }

  Part Load(const Share& share, DevicePart& to) {
    const SequenceShape& sequence = request().sequences[share.sequence];
    const ProblemShape& shape = request().ProblemOf(sequence);
    const bool is_cut = share.is_cut(request());
    Part part{share.sequence, share.kv_head, share.kv_heads, share.rows};
    Columns columns;
    columns.run = {0, sequence.sees.columns};
    if (is_cut &&
        (request().op == Op::kForward || !IsFirst(to.device, share))) {
      columns.run = Widen(Needed(sequence.sees, share.rows),
                          sequence.sees.columns, sequence.unit);
    }
    const auto load = [&](TensorId id, Slice slice) {
      const int buffer = builder_.NewBuffer(to.device, id, *shape.inputs[id],
                                            std::move(slice));
      if (HasColumns(id)) {
        builder_.BringColumns(buffer, builder_.buffer(buffer).slice, to.loaded);
      } else {
        to.loaded.push_back(builder_.UploadAll(buffer));
      }
      return buffer;
    };
    const Slice kv = builder_.ColumnsOf(share.sequence, share.kv_head,
                                        share.kv_heads, columns.run);
    columns.k = load(TensorId::kK, kv);
    columns.v = load(TensorId::kV, kv);
    for (TensorId id : RowInputs(request().op)) {
      if (!shape.inputs[id].has_value()) continue;
      part.buffers[id] = load(
          id, id == TensorId::kBias
                  ? builder_.BiasOf(share.sequence, share.kv_head,
                                    share.kv_heads, share.rows, {columns.run})
                  : builder_.RowsOf(share.sequence, share.kv_head,
                                    share.kv_heads, share.rows));
    }
    for (TensorId id : RowOutputs(request().op)) {
      if (!shape.outputs[id].has_value()) continue;
      const int buffer =
          builder_.NewBuffer(to.device, id, *shape.outputs[id],
                             builder_.RowsOf(share.sequence, share.kv_head,
                                             share.kv_heads, share.rows));
      part.buffers[id] = buffer;
      to.outputs.push_back(buffer);
    }
    columns.dk = Gradient(TensorId::kDK, kv, is_cut, to);
    columns.dv = Gradient(TensorId::kDV, kv, is_cut, to);
    part.columns.push_back(columns);
    return part;
  }

  // Whether no device before this one has rows of the share's head.
  bool IsFirst(int device, const Share& share) const {
    for (int other = 0; other < device; ++other) {
      for (const Share& theirs : shares_[other]) {
        if (theirs.sequence == share.sequence &&
            theirs.kv_head <= share.kv_head &&
            share.kv_head < theirs.kv_head + theirs.kv_heads) {
          return false;
        }
      }
    }
    return true;
  }

  std::optional<int> Gradient(TensorId id, const Slice& slice, bool is_cut,
                              DevicePart& to) {
    const auto& dtype = request().ProblemOf(slice.sequence).outputs[id];
    if (!dtype.has_value()) return std::nullopt;
    const int buffer =
        builder_.NewBuffer(to.device, id, is_cut ? DType::kF32 : *dtype, slice);
    if (!is_cut) {
      to.outputs.push_back(buffer);
      return buffer;
    }
    const auto found =
        std::find_if(cut_.begin(), cut_.end(), [&](const CutHead& head) {
          return head.tensor == id && head.slice.sequence == slice.sequence &&
                 head.slice.head == slice.head;
        });
    to.terms.push_back(buffer);
    const Term term{buffer};
    if (found != cut_.end()) {
      found->terms.push_back(term);
    } else {
      cut_.push_back({to.device, slice, id, *dtype, {term}});
    }
    return buffer;
  }

  void ComputeAll(DevicePart& part) {
    if (part.compute.parts.empty()) return;
    part.step = builder_.Add(part.device, std::move(part.compute), part.loaded);
    for (CutHead& head : cut_) {
      for (Term& term : head.terms) {
        if (std::find(part.terms.begin(), part.terms.end(), term.buffer) !=
            part.terms.end()) {
          term.step = part.step;
        }
      }
    }
  }

  void StoreAll(const DevicePart& part) {
    for (int buffer : part.outputs) builder_.DownloadAll(buffer, {part.step});
  }

  // The first device of a head's, which has a term for all columns, adds the
  // others' to it, where they have any.
  void SumCutHeads() {
    for (int device = 0; device < builder_.devices(); ++device) {
      std::vector<Total> totals;
      for (const CutHead& head : cut_) {
        if (head.device != device) continue;
        const int result =
            builder_.NewBuffer(device, head.tensor, head.dtype, head.slice);
        totals.push_back({result, head.slice, head.terms});
      }
      const auto summed = SumTerms(device, totals, builder_);
      for (size_t i = 0; i < totals.size(); ++i) {
        builder_.DownloadAll(totals[i].buffer, summed[i]);
      }
    }
  }

  std::string Why() const {
    int cut = 0;
    for (const auto& shares : shares_) {
      for (const Share& share : shares) cut += share.is_cut(request()) ? 1 : 0;
    }
    if (cut == 0) return "K/V heads divide among the devices";
    return absl::StrCat("K/V heads of which ", cut,
                        " parts are some rows of one head");
  }

  PlanBuilder builder_;
  const std::vector<std::vector<Share>> shares_;
  std::vector<CutHead> cut_;
};

}  // namespace

Plan MakeHeads(const PlanRequest& request, int devices) {
  return Heads(request, devices).Make();
}

}  // namespace attnd::plan
