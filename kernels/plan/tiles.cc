#include "kernels/plan/tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/plan/cost.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::plan {
namespace {

// Rows that backward's tiles of columns visit at a time, and columns of such a
// tile.
constexpr int64_t kBackwardRows = 64, kBackwardColumns = 128;

// Tiles of one or more parts, in seconds of one processor.
struct Tiles {
  double count = 0;
  double sum = 0;
  double longest = 0, shortest = std::numeric_limits<double>::infinity();

  void Add(const Tiles& other) {
    count += other.count;
    sum += other.sum;
    longest = std::max(longest, other.longest);
    shortest = std::min(shortest, other.shortest);
  }
};

double Up(int64_t n, int64_t unit) {
  return static_cast<double>((n + unit - 1) / unit * unit);
}

class TilesOfPart {
 public:
  TilesOfPart(const PlanRequest& request, const Part& part)
      : request_(request),
        part_(part),
        sequence_(request.sequences[part.sequence]),
        shape_(request.ProblemOf(sequence_)),
        kernel_(KernelRatesOf(request)) {}

  Tiles Find() const {
    return request_.op == Op::kForward ? OfRows() : OfColumns();
  }
  // Whether the kernel shares out a sequence's columns by itself: it decodes.
  bool IsDecode() const {
    return request_.op == Op::kForward && sequence_.unit.columns > 1 &&
           sequence_.unit.columns >= sequence_.sees.columns;
  }

 private:
  // What a processor takes for a pair of a row and a column of a head.
  double PairSeconds() const {
    const bool forward = request_.op == Op::kForward;
    const double dims = static_cast<double>(shape_.head_dim + shape_.value_dim);
    double seconds = ((forward ? 2.0 : 5.0) * dims + kernel_.pair_flops) /
                     (kernel_.flops / request_.rates.processors);
    if (shape_.inputs[TensorId::kQ] == DType::kF32) {
      seconds *= request_.rates.f32;
    }
    if (!forward && request_.deterministic) {
      seconds *= request_.rates.deterministic;
    }
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
    return std::min(all, pairs + tiles * sides / 2 *
                                     static_cast<double>(rows * columns));
  }

  Tiles OfRows() const {
    const int64_t unit = std::max<int64_t>(sequence_.unit.rows, 1);
    const int64_t columns_unit =
        IsDecode() ? 1 : std::max<int64_t>(sequence_.unit.columns, 1);
    const double tiles = Up(part_.rows.count, unit) / unit;
    double visited = 0, most = 0, least = 0;
    for (const Columns& columns : part_.columns) {
      const RowIntervals sees =
          Restrict(sequence_.sees, part_.rows, columns.run);
      visited += Visited(sees,
                         PairsOf(sequence_.sees, part_.rows, columns.run),
                         unit, columns_unit, tiles);
      const auto first = static_cast<double>(sees.Row(0).size());
      const auto last = static_cast<double>(sees.Row(sees.rows - 1).size());
      most += std::max(first, last);
      least += std::min(first, last);
    }
    // A tile that is not full takes as long.
    visited *= tiles * static_cast<double>(unit) /
               static_cast<double>(part_.rows.count);
    const double heads =
        static_cast<double>(part_.kv_heads * shape_.group());
    const double column_seconds = static_cast<double>(unit) * PairSeconds();
    return {heads * tiles,
            heads * (tiles * kernel_.tile_seconds + visited * PairSeconds()),
            kernel_.tile_seconds + column_seconds * most,
            kernel_.tile_seconds + column_seconds * least};
  }

  Tiles OfColumns() const {
    Tiles all;
    for (const Columns& columns : part_.columns) {
      const RowIntervals sees =
          Restrict(sequence_.sees, part_.rows, columns.run);
      if (sees.columns == 0) continue;
      const double tiles = Up(sees.columns, kBackwardColumns) /
                           static_cast<double>(kBackwardColumns);
      double visited =
          Visited(sees, PairsOf(sequence_.sees, part_.rows, columns.run),
                  kBackwardRows, kBackwardColumns, tiles);
      visited *= tiles * static_cast<double>(kBackwardColumns) /
                 static_cast<double>(sees.columns);
      const auto first = static_cast<double>(sees.RowsThatSee(0, 0).size());
      const auto last = static_cast<double>(
          sees.RowsThatSee(sees.columns - 1, sees.columns - 1).size());
      const auto group = static_cast<double>(shape_.group());
      const auto heads = static_cast<double>(part_.kv_heads);
      const double row_seconds =
          group * static_cast<double>(kBackwardColumns) * PairSeconds();
      all.Add({heads * tiles,
               heads * (tiles * kernel_.tile_seconds +
                        group * visited * PairSeconds()),
               kernel_.tile_seconds + row_seconds * std::max(first, last),
               kernel_.tile_seconds + row_seconds * std::min(first, last)});
    }
    return all;
  }

  const PlanRequest& request_;
  const Part& part_;
  const SequenceShape& sequence_;
  const ProblemShape& shape_;
  const DeviceRates::Kernel& kernel_;
};

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
      bytes += static_cast<double>(
          SliceBytes(request, b.tensor, b.dtype, slice));
    }
  }
  return bytes;
}

}  // namespace

LaunchSeconds SecondsOf(const PlanRequest& request, const Plan& plan,
                        const Compute& compute) {
  Tiles tiles;
  double columns = 0, carried = 0, shared = 0;
  for (const Part& part : compute.parts) {
    carried += CarriedBytes(request, plan, part);
    columns += ColumnBytes(request, plan, part);
    if (part.rows.count == 0) continue;
    const TilesOfPart of(request, part);
    if (of.IsDecode()) {
      shared += of.Find().sum;
    } else {
      tiles.Add(of.Find());
    }
  }
  const DeviceRates& rates = request.rates;
  LaunchSeconds seconds;
  seconds.busy = std::max((tiles.sum + shared) / rates.processors,
                          columns / rates.memory_bytes) +
                 carried / rates.memory_bytes;
  seconds.until_done = seconds.busy;
  if (tiles.count > 0) {
    const double alike =
        std::ceil(tiles.count / rates.processors) * tiles.longest;
    const double unlike =
        std::max(tiles.longest,
                 tiles.sum / rates.processors +
                     (rates.processors > 1 ? tiles.shortest / 2 : 0));
    seconds.until_done =
        std::max(seconds.until_done,
                 std::min(alike, unlike) + carried / rates.memory_bytes);
  }
  return seconds;
}

}  // namespace attnd::plan
