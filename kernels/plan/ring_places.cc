#include "kernels/plan/ring_places.h"

#include <cstdint>

#include "kernels/plan/ring_phases.h"

namespace attnd::plan {
namespace {

// The runs of each share, as many for all of them; some may be empty. They need
// no whole tiles of a kernel: a device's tiles begin with its own first token,
// and bits are not those of one device anyway.
std::vector<Runs> Cut(PlanKind kind, int64_t tokens, int shares) {
  const bool zigzag = kind == PlanKind::kZigzag;
  const int parts = zigzag ? 2 * shares : shares;
  const std::vector<Runs> cut = kind == PlanKind::kStriped
                                    ? CutStriped(tokens, parts)
                                    : CutEvenly(tokens, parts, {});
  const auto part = [&](int i) { return cut[i].empty() ? Run{} : cut[i][0]; };
  std::vector<Runs> runs(shares);
  for (int share = 0; share < shares; ++share) {
    runs[share].push_back(part(share));
    if (zigzag) runs[share].push_back(part(parts - 1 - share));
  }
  return runs;
}

// Rows in one run where two are neighbours, as the last device's are: they are
// computed at once, by which fewer kernels are launched. Columns stay apart:
// blocks that go through one memory then have runs of about the same lengths.
Runs Joined(const Runs& runs) {
  if (runs.size() == 2 && !runs[0].empty() && !runs[1].empty() &&
      runs[0].step == 1 && runs[0].end() == runs[1].first) {
    return {{runs[0].first, runs[0].count + runs[1].count, 1}};
  }
  return runs;
}

// What the device's rows see of each block, which is wanted then.
RingPlaces::Rows FindTurns(const RowIntervals& sees, int device, const Run& run,
                           const std::vector<Runs>& blocks,
                           const std::vector<int>& phases,
                           std::vector<std::vector<Runs>>& wanted) {
  RingPlaces::Rows rows{device, run};
  const Run needed = Needed(sees, run);
  const int devices = static_cast<int>(blocks.size());
  for (int step = 0; step < devices; ++step) {
    const int block = BlockAt(device, step, devices);
    for (size_t r = 0; r < blocks[block].size(); ++r) {
      const Run seen = Common(needed, blocks[block][r]);
      if (seen.empty()) continue;
      if (rows.turns.empty() || rows.turns.back().phase != phases[step]) {
        rows.turns.push_back({phases[step]});
      }
      rows.turns.back().columns.push_back({step, r, seen});
      wanted[block][r][step] = Hull(wanted[block][r][step], seen);
    }
  }
  if (rows.turns.empty()) rows.turns.emplace_back();
  return rows;
}

void WidenTurns(RingPlaces& places) {
  for (RingPlaces::Rows& rows : places.rows) {
    for (RingPlaces::Turn& turn : rows.turns) {
      for (auto& [step, r, columns] : turn.columns) {
        columns = places.Wanted(rows.device, step, r);
      }
    }
  }
}

// What is passed on is there before that, wherever it comes from.
void WantWhatIsPassedOn(Transport transport, Runs& wanted) {
  for (size_t step = wanted.size() - 1; step > 0; --step) {
    Run& from = wanted[transport == Transport::kRing ? step - 1 : 0];
    from = Hull(from, wanted[step]);
  }
}

}  // namespace

RingPlaces PlaceRing(const PlanRequest& request, const SequenceShape& sequence,
                     int devices) {
  const RowIntervals& sees = sequence.sees;
  const std::vector<Runs> blocks = Cut(request.kind, sees.columns, devices);
  const std::vector<Runs> rows = Cut(request.kind, sees.rows, devices);
  const std::vector<int> phases = PhasesOf(request, devices);
  RingPlaces places;
  places.phases = phases.back() + 1;
  places.blocks = blocks;
  places.runs = blocks.front().size();
  places.wanted.assign(devices, std::vector<Runs>(places.runs, Runs(devices)));
  for (int device = 0; device < devices; ++device) {
    for (const Run& run : Joined(rows[device])) {
      if (run.empty()) continue;
      places.rows.push_back(
          FindTurns(sees, device, run, blocks, phases, places.wanted));
    }
  }
  for (std::vector<Runs>& block : places.wanted) {
    for (Runs& wanted : block) WantWhatIsPassedOn(request.transport, wanted);
  }
  if (request.op == Op::kBackward) WidenTurns(places);
  return places;
}

}  // namespace attnd::plan
