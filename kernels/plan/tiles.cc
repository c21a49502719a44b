#include "kernels/plan/tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/plan/cost.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {
namespace {

// Rows that backward's tiles of columns visit at a time, and columns of such a
// tile.
constexpr int64_t kBackwardRows = 64, kBackwardColumns = 128;

// Tiles of one run of rows or columns, in seconds of one processor.
struct Lengths {
  double count = 0;
  double sum = 0;
  double longest = 0, shortest = std::numeric_limits<double>::infinity();

  // The share of tiles that are as long as the longest, if the others lie
  // evenly between that and the shortest.
  double AlikeShare() const {
    const double spread = longest - shortest;
    if (spread <= 0) return 1;
    return std::clamp((sum / count - (longest + shortest) / 2) / (spread / 2),
                      0.0, 1.0);
  }

  double LongerThan(double length) const {
    if (length >= longest) return 0;
    if (length < shortest) return count;
    const double alike = AlikeShare();
    const double others = (longest - length) / (longest - shortest);
    return count * (alike + (1 - alike) * others);
  }
};

// Those of one or more parts. Runs of columns that lie apart have tiles of
// quite other lengths.
struct Tiles : Lengths {
  // How long adding to the same rows in turns takes, if each head begins before
  // the one before it ends; and what is left of the last one then, which none
  // follows.
  double in_turns = 0, last_turns = 0;
  std::vector<Lengths> runs = {};

  Tiles() = default;
  explicit Tiles(const Lengths& run) : Lengths(run), runs({run}) {}

  void Add(const Tiles& other) {
    count += other.count;
    sum += other.sum;
    longest = std::max(longest, other.longest);
    shortest = std::min(shortest, other.shortest);
    in_turns += other.in_turns;
    last_turns = std::max(last_turns, other.last_turns);
    runs.insert(runs.end(), other.runs.begin(), other.runs.end());
  }
};

// What the longest tile takes of those that are left when so many have been
// handed out, long ones first.
double LengthAt(const Tiles& tiles, double index) {
  double low = tiles.shortest, high = tiles.longest;
  const auto more_are_longer = [&](double length) {
    double count = 0;
    for (const Lengths& run : tiles.runs) count += run.LongerThan(length);
    return count > index;
  };
  constexpr int kHalvings = 20;  // to a millionth
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (more_are_longer(middle) ? low : high) = middle;
  }
  return high;
}

// When the last tile ends. `in_order`: heads come one after the other, the
// longest tile of each last, and not the longest of all first.
double SpanOf(const Tiles& tiles, double processors, bool in_order) {
  if (tiles.count == 0) return 0;
  const double evenly = tiles.sum / processors;
  if (tiles.count <= processors || processors == 1) {
    return std::max(tiles.longest, evenly);
  }
  const double in_rounds = std::ceil(tiles.count / processors) * tiles.longest;
  if (in_order) {
    // The last one begins where as many short ones have ended as there are more
    // than processors.
    const double last_begins =
        tiles.count <= 2 * processors
            ? LengthAt(tiles, processors)
            : evenly - tiles.longest * (0.75 - tiles.AlikeShare() / 4);
    return std::min(in_rounds, std::max(evenly, last_begins + tiles.longest));
  }
  // In two rounds the longest of the second begin where the shortest of the
  // first end.
  if (tiles.count <= 2 * processors) {
    return std::max(
        {tiles.longest, evenly,
         LengthAt(tiles, processors - 1) + LengthAt(tiles, processors)});
  }
  return std::min(in_rounds,
                  std::max(tiles.longest, evenly + tiles.shortest / 2));
}

// Of what `count` > 0 rows or columns see, about: what the first, the last and
// the one between them do.
struct Sizes {
  double most, least;
};
template <class SizeOf>
Sizes SizesOf(int64_t count, SizeOf size_of) {
  const std::pair<int64_t, int64_t> sizes =
      std::minmax({size_of(0), size_of(count / 2), size_of(count - 1)});
  return {static_cast<double>(sizes.second), static_cast<double>(sizes.first)};
}

int64_t Blocks(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

// Whether the kernel shares out a sequence's columns by itself: it decodes, and
// has no other kernel's least rows.
bool IsDecode(const PlanRequest& request, const SequenceShape& sequence) {
  const CutUnit& unit = sequence.unit;
  return request.op == Op::kForward && unit.least_rows <= 1 &&
         unit.columns > 1 && unit.columns >= sequence.sees.columns;
}

class TilesOfPart {
 public:
  TilesOfPart(const PlanRequest& request, const Part& part)
      : request_(request),
        rates_(request.rates),
        part_(part),
        sequence_(request.sequences[part.sequence]),
        shape_(request.ProblemOf(sequence_)),
        kernel_(KernelRatesOf(request)) {}

  Tiles Find() const {
    if (part_.rows.count == 0) return {};
    return request_.op == Op::kForward ? OfRows() : OfColumns();
  }

  // Of all processors, of rows of a whole group of heads in blocks of `unit`.
  double DecodeSeconds() const {
    const int64_t unit = std::max<int64_t>(sequence_.unit.rows, 1);
    const int64_t rows = Blocks(part_.rows.count * shape_.group(), unit) * unit;
    double columns = 0;
    for (const Columns& some : part_.columns) {
      columns += static_cast<double>(some.run.count);
    }
    return static_cast<double>(rows * part_.kv_heads) * columns *
           PairSeconds(rates_.decode) / rates_.processors;
  }

 private:
  // What a processor takes for a pair of a row and a column of a head.
  double PairSeconds(const DeviceRates::Kernel& kernel) const {
    const bool forward = request_.op == Op::kForward;
    const double dims = static_cast<double>(shape_.head_dim + shape_.value_dim);
    double seconds = ((forward ? 2.0 : 5.0) * dims + kernel.pair_flops) /
                     (kernel.flops / rates_.processors);
    if (shape_.inputs[TensorId::kQ] == DType::kF32) seconds *= rates_.f32;
    if (!forward && request_.deterministic) seconds *= rates_.deterministic;
    return seconds;
  }

  // Pairs that tiles of so many rows and columns visit, those included that a
  // mask hides: of each tile about half a block at either end of what it sees.
  static double Visited(const RowIntervals& sees, double pairs, int64_t rows,
                        int64_t columns, double tiles) {
    const double all =
        static_cast<double>(sees.rows) * static_cast<double>(sees.columns);
    if (pairs == 0 || pairs == all) return pairs;
    const int sides = (sees.left >= 0 ? 1 : 0) + (sees.right >= 0 ? 1 : 0);
    return std::min(
        all, pairs + tiles * sides / 2 * static_cast<double>(rows * columns));
  }

  Tiles OfRows() const {
    const int64_t unit = std::max<int64_t>(sequence_.unit.rows, 1);
    const int64_t columns_unit = std::max<int64_t>(sequence_.unit.columns, 1);
    const auto tiles = static_cast<double>(Blocks(part_.rows.count, unit));
    double visited = 0, most = 0, least = 0;
    for (const Columns& columns : part_.columns) {
      const RowIntervals sees =
          Restrict(sequence_.sees, part_.rows, columns.run);
      visited += Visited(sees, PairsOf(sequence_.sees, part_.rows, columns.run),
                         unit, columns_unit, tiles);
      const Sizes sizes =
          SizesOf(sees.rows, [&](int64_t row) { return sees.Row(row).size(); });
      most += sizes.most;
      least += sizes.least;
    }
    // A tile that is not full takes as long.
    visited *= tiles * static_cast<double>(unit) /
               static_cast<double>(part_.rows.count);
    const auto heads = static_cast<double>(part_.kv_heads * shape_.group());
    const double pair = PairSeconds(kernel_);
    const double column = static_cast<double>(unit) * pair;
    return Tiles({heads * tiles,
                  heads * (tiles * kernel_.tile_seconds + visited * pair),
                  kernel_.tile_seconds + column * most,
                  kernel_.tile_seconds + column * least});
  }

  Tiles OfColumns() const {
    Tiles all;
    for (const Columns& columns : part_.columns) {
      const RowIntervals sees =
          Restrict(sequence_.sees, part_.rows, columns.run);
      if (sees.columns > 0) all.Add(OfColumns(sees));
    }
    return all;
  }

  Tiles OfColumns(const RowIntervals& sees) const {
    const auto tiles =
        static_cast<double>(Blocks(sees.columns, kBackwardColumns));
    // Rows, and columns, of which some are looked at in vain, take as long.
    double visited =
        Visited(sees, PairsOf(sees, {0, sees.rows}, {0, sees.columns}),
                kBackwardRows, kBackwardColumns, tiles);
    visited *=
        tiles * static_cast<double>(kBackwardColumns) /
        static_cast<double>(sees.columns) *
        static_cast<double>(Blocks(sees.rows, kBackwardRows) * kBackwardRows) /
        static_cast<double>(sees.rows);
    const Sizes sizes = SizesOf(sees.columns, [&](int64_t column) {
      return sees.RowsThatSee(column, column).size();
    });
    const auto group = static_cast<double>(shape_.group());
    const auto heads = static_cast<double>(part_.kv_heads);
    const double pair = PairSeconds(kernel_);
    const double row = group * static_cast<double>(kBackwardColumns) * pair;
    Tiles found(
        {heads * tiles,
         heads * (tiles * kernel_.tile_seconds + group * visited * pair),
         kernel_.tile_seconds + row * sizes.most,
         kernel_.tile_seconds + row * sizes.least});
    if (request_.deterministic) {
      const Sizes seen =
          SizesOf(sees.rows, [&](int64_t of) { return sees.Row(of).size(); });
      const double chain = std::min(
          tiles, seen.most / static_cast<double>(kBackwardColumns) + 1);
      // Heads that have few tiles are under way together, and the next one
      // begins before this one ends.
      const double at_once = 1 + 0.8 * rates_.processors / tiles;
      const double turns = chain * rates_.turn_seconds;
      found.in_turns = heads / at_once * turns;
      found.last_turns = std::max(0.0, 1 - heads / at_once) * turns;
    }
    return found;
  }

  const PlanRequest& request_;
  const DeviceRates& rates_;
  const Part& part_;
  const SequenceShape& sequence_;
  const ProblemShape& shape_;
  const DeviceRates::Kernel& kernel_;
};

// Of a backward's rows: sums of dQ, LSE in two units, and delta.
double ScratchBytes(const PlanRequest& request, const Part& part) {
  const ProblemShape& shape =
      request.ProblemOf(request.sequences[part.sequence]);
  return static_cast<double>(part.rows.count * part.kv_heads * shape.group() *
                             (shape.head_dim + 3)) *
         sizeof(float);
}

// Of what a launch reads and writes in f32 for others, and of what a backward
// does before and after its tiles: dQ is zeroed, added up in f32 and rounded,
// and delta is found.
double CarriedBytes(const PlanRequest& request, const Plan& plan,
                    const Part& part) {
  const SequenceShape& sequence = request.sequences[part.sequence];
  const ProblemShape& shape = request.ProblemOf(sequence);
  double bytes = 0;
  const auto add = [&](const std::optional<int>& buffer, const Run& run,
                       int64_t heads, int64_t dim) {
    if (!buffer.has_value() || plan.buffers[*buffer].dtype != DType::kF32) {
      return;
    }
    bytes += static_cast<double>(run.count * heads * dim) * sizeof(float);
  };
  const int64_t q_heads = part.kv_heads * shape.group();
  if (request.op == Op::kForward) {
    add(part.buffers[TensorId::kO], part.rows, q_heads, shape.value_dim);
    if (part.before.has_value()) {
      add(part.before->o, part.rows, q_heads, shape.value_dim);
    }
    return bytes;
  }
  bytes += static_cast<double>(part.rows.count * q_heads) *
           static_cast<double>(10 * shape.head_dim + 4 * shape.value_dim);
  add(part.dq_before, part.rows, q_heads, shape.head_dim);
  for (const Columns& columns : part.columns) {
    for (const auto& [buffer, dim] :
         {std::pair{columns.dk, shape.head_dim},
          std::pair{columns.dk_before, shape.head_dim},
          std::pair{columns.dv, shape.value_dim},
          std::pair{columns.dv_before, shape.value_dim}}) {
      add(buffer, columns.run, part.kv_heads, dim);
    }
  }
  return bytes;
}

// K and V, all read once.
double ColumnBytes(const PlanRequest& request, const Plan& plan,
                   const Part& part) {
  double bytes = 0;
  for (const Columns& columns : part.columns) {
    const Slice slice{
        part.sequence, part.kv_head, part.kv_heads, columns.run, {}};
    for (const int buffer : {columns.k, columns.v}) {
      const Buffer& b = plan.buffers[buffer];
      bytes +=
          static_cast<double>(SliceBytes(request, b.tensor, b.dtype, slice));
    }
  }
  return bytes;
}

}  // namespace

bool IsDecode(const PlanRequest& request, const Compute& compute) {
  return std::all_of(
      compute.parts.begin(), compute.parts.end(), [&](const Part& part) {
        return IsDecode(request, request.sequences[part.sequence]);
      });
}

LaunchSeconds SecondsOf(const PlanRequest& request, const Plan& plan,
                        const Compute& compute) {
  const DeviceRates& rates = request.rates;
  Tiles tiles;
  LaunchSeconds seconds;
  double carried = 0, columns = 0, decode = 0, scratch = 0, tile_columns = 0;
  const auto end_tiles = [&] {
    const double turns = tiles.in_turns + tiles.last_turns;
    seconds.until_done =
        seconds.busy +
        std::max(SpanOf(tiles, rates.processors,
                        request.op == Op::kBackward && request.deterministic),
                 turns);
    seconds.busy += std::max(tiles.sum / rates.processors, turns);
    tiles = {};
    scratch = 0;
  };
  for (const Part& part : compute.parts) {
    carried += CarriedBytes(request, plan, part);
    const TilesOfPart of(request, part);
    if (IsDecode(request, request.sequences[part.sequence])) {
      columns += ColumnBytes(request, plan, part);
      decode += of.DecodeSeconds();
      continue;
    }
    if (request.op == Op::kBackward) {
      scratch += ScratchBytes(request, part);
      // The next problems wait for these.
      if (scratch > rates.shared_scratch && tiles.count > 0) {
        const double own = ScratchBytes(request, part);
        end_tiles();
        seconds.busy = seconds.until_done +=
            KernelRatesOf(request).launch_seconds;
        scratch = own;
      }
    }
    tiles.Add(of.Find());
    tile_columns += ColumnBytes(request, plan, part);
  }
  end_tiles();
  const double least = tile_columns / rates.memory_bytes;
  seconds.busy = std::max(seconds.busy, least);
  seconds.until_done = std::max(seconds.until_done, least);
  const double reading = columns / rates.memory_bytes;
  const double beside = std::max(decode, reading) +
                        std::min(decode, reading) / 2 +
                        carried / rates.memory_bytes;
  seconds.busy += beside;
  seconds.until_done += beside;
  return seconds;
}

}  // namespace attnd::plan
