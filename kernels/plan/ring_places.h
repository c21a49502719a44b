#ifndef ATTND_KERNELS_PLAN_RING_PLACES_H_
#define ATTND_KERNELS_PLAN_RING_PLACES_H_

// Who has which tokens of a sequence whose columns go round, and what of them
// is wanted where and when.

#include <cstddef>
#include <vector>

#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// The block that a device has at a step: its own at step 0, and then always
// what the device before it had. Where blocks do not go round but are pulled
// from all, these are the steps at which they are there: the nearest first.
constexpr int BlockAt(int device, int step, int devices) {
  return (device + devices - step) % devices;
}

// A block's columns are one run, or two in zigzag, which may be empty.
struct RingPlaces {
  // What some rows see of run `r` of the block that is there at a step; of a
  // backward, all that is wanted then of a run of which they see anything.
  struct Seen {
    int step = 0;
    size_t r = 0;
    Run run;
  };
  // What they see of the blocks of one phase (ring_phases.h).
  struct Turn {
    int phase = 0;
    std::vector<Seen> columns = {};
  };
  // One run of rows on its device. It has a turn for each phase in which it
  // sees anything, and one at the first if it sees nothing at all: it has
  // results then, too.
  struct Rows {
    int device = 0;
    Run run;
    std::vector<Turn> turns = {};
  };

  std::vector<Rows> rows;    // by device
  size_t runs = 1;           // of a block
  std::vector<Runs> blocks;  // by device
  // By block, run and step: what the device that has it then wants of it, or
  // one that has it later. A block goes on no further than that. Of pulled
  // blocks later devices matter at step 0 alone.
  std::vector<std::vector<Runs>> wanted;
  int phases = 1;

  // Of a run of the block that a device has at a step: what is wanted then, and
  // what is at the next one.
  const Run& Wanted(int device, int step, size_t r) const {
    return wanted[BlockOf(device, step)][r][step];
  }
  Run WantedAfter(int device, int step, size_t r) const {
    const Runs& run = wanted[BlockOf(device, step)][r];
    return step + 1 < static_cast<int>(run.size()) ? run[step + 1] : Run{};
  }

 private:
  int BlockOf(int device, int step) const {
    return BlockAt(device, step, static_cast<int>(wanted.size()));
  }
};

// As `request.kind` says.
RingPlaces PlaceRing(const PlanRequest& request, const SequenceShape& sequence,
                     int devices);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_RING_PLACES_H_
