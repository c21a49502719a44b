#include "kernels/plan/pulled_gradients.h"

#include <utility>

#include "kernels/plan/term_sums.h"

namespace attnd::plan {

template <class Do>
void PulledGradients::ForEachWanted(int32_t sequence, Do todo) const {
  const auto& wanted = builder_.request().ProblemOf(sequence).outputs;
  for (const TensorId id : {TensorId::kDK, TensorId::kDV}) {
    if (wanted[id].has_value()) todo(id);
  }
}

PulledGradients::PulledGradients(std::vector<const RingPlaces*> places,
                                 PlanBuilder& builder)
    : places_(std::move(places)), builder_(builder) {
  const int devices = builder_.devices();
  for (const RingPlaces* of : places_) {
    const BlockTerms none(of->runs, std::vector<DeviceTerm>(devices));
    terms_.emplace_back(devices, none);
  }
}

void PulledGradients::Add(int32_t i, int device, const RingPlaces::Seen& seen,
                          Columns& columns, Adding& adding) {
  const int block = BlockAt(device, seen.step, builder_.devices());
  DeviceTerm& term = terms_[i][block][seen.r][device];
  bool any = false;
  ForEachWanted(i, [&](TensorId id) {
    const bool is_dk = id == TensorId::kDK;
    std::optional<int>& buffer = term.buffers[id];
    (is_dk ? columns.dk_before : columns.dv_before) = buffer;
    buffer = builder_.NewBuffer(device, id, DType::kF32,
                                ColumnsOf(i, columns.run), buffer);
    (is_dk ? columns.dk : columns.dv) = buffer;
    any = true;
  });
  if (!any) return;
  adding.after.insert(adding.after.end(), term.written.begin(),
                      term.written.end());
  term.written.clear();
  adding.told.push_back(&term.written);
}

void PulledGradients::SendSums(int device) {
  std::vector<Total> totals;
  for (int32_t i = 0; i < static_cast<int32_t>(places_.size()); ++i) {
    for (size_t r = 0; r < places_[i]->runs; ++r) {
      const Run& block = places_[i]->blocks[device][r];
      if (block.empty()) continue;
      ForEachWanted(i, [&](TensorId id) {
        Total total{0, ColumnsOf(i, block), {}};
        total.buffer =
            builder_.NewBuffer(device, id, DTypeOf(i, id), total.slice);
        for (const DeviceTerm& term : terms_[i][device][r]) {
          if (!term.buffers[id].has_value()) continue;
          total.terms.push_back({*term.buffers[id], term.written.front()});
        }
        totals.push_back(std::move(total));
      });
    }
  }
  const auto summed = SumTerms(device, totals, builder_);
  for (size_t i = 0; i < totals.size(); ++i) {
    builder_.DownloadAll(totals[i].buffer, summed[i]);
  }
}

}  // namespace attnd::plan
