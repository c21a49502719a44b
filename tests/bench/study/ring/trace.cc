#include "tests/bench/study/ring/trace.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/plan/cost.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan_builder.h"

namespace attnd::bench {
namespace {

using plan::Run;
using plan::Runs;

std::string Json(const Run& run) {
  return absl::StrFormat("[%d, %d, %d]", run.first, run.count, run.step);
}

template <class Values, class Text>
std::string JsonList(const Values& values, Text text) {
  return absl::StrCat("[",
                      absl::StrJoin(values, ", ",
                                    [&](std::string* out, const auto& value) {
                                      out->append(text(value));
                                    }),
                      "]");
}

std::string Json(const std::vector<int>& numbers) {
  return JsonList(numbers, [](int number) { return absl::StrCat(number); });
}

class Tracer {
 public:
  Tracer(const plan::PlanRequest& request, const plan::Plan& plan)
      : request_(request),
        plan_(plan),
        rows_(RunsOf(TensorId::kQ)),
        blocks_(RunsOf(TensorId::kK)) {}

  std::string Json() const {
    const auto runs = [](const Runs& some) {
      return JsonList(some, [](const Run& run) { return bench::Json(run); });
    };
    return absl::StrFormat(
        "\"ran_as\": \"%s\", \"rows\": %s, \"columns\": %s, \"cost\": %s, "
        "\"steps\": %s",
        PlanName(plan_.kind), JsonList(rows_, runs), JsonList(blocks_, runs),
        JsonList(plan_.cost.devices,
                 [](const plan::PlanCost::Device& device) {
                   return absl::StrFormat(
                       "{\"memory_bytes\": %d, \"pulled_bytes\": %d, "
                       "\"flops\": %.0f}",
                       device.memory_bytes, device.pulled_bytes, device.flops);
                 }),
        JsonList(plan_.steps, [this](const plan::Step& step) {
          return absl::StrFormat(
              "{\"device\": %d, \"after\": %s, %s}", step.device,
              bench::Json(step.after),
              std::visit([this](const auto& what) { return Of(what); },
                         step.what));
        }));
  }

 private:
  // By device, the tokens of a tensor that it gets from the host.
  std::vector<Runs> RunsOf(TensorId tensor) const {
    std::vector<Runs> runs(plan_.devices);
    for (const plan::Step& step : plan_.steps) {
      const auto* upload = std::get_if<plan::Upload>(&step.what);
      if (upload == nullptr || plan_.buffers[upload->to].tensor != tensor) {
        continue;
      }
      Runs& of = runs[step.device];
      const Run& run = upload->slice.tokens;
      if (std::find(of.begin(), of.end(), run) == of.end()) of.push_back(run);
    }
    return runs;
  }

  // The devices that have had any of these columns at first.
  std::vector<int> BlocksOf(const Run& columns) const {
    std::vector<int> blocks;
    for (int device = 0; device < plan_.devices; ++device) {
      const Runs& runs = blocks_[device];
      if (std::any_of(runs.begin(), runs.end(), [&](const Run& run) {
            return !Common(columns, run).empty();
          })) {
        blocks.push_back(device);
      }
    }
    return blocks;
  }

  static void Add(const std::vector<int>& some, std::vector<int>& to) {
    for (int block : some) {
      if (std::find(to.begin(), to.end(), block) == to.end()) {
        to.push_back(block);
      }
    }
  }

  std::string Of(const plan::Compute& compute) const {
    double pairs = 0;
    int64_t tiles = 0;
    std::vector<int> blocks;
    for (const plan::Part& part : compute.parts) {
      const RowIntervals& sees = request_.sequences[part.sequence].sees;
      const int64_t heads =
          part.kv_heads * request_.ProblemOf(part.sequence).group();
      for (const plan::Columns& columns : part.columns) {
        pairs +=
            static_cast<double>(heads) * PairsOf(sees, part.rows, columns.run);
        tiles += heads * VisitedTiles(Restrict(sees, part.rows, columns.run));
        Add(BlocksOf(columns.run), blocks);
      }
    }
    return absl::StrFormat(
        "\"do\": \"compute\", \"blocks\": %s, \"pairs\": %.0f, \"tiles\": %d, "
        "\"flops\": %.0f",
        bench::Json(blocks), pairs, tiles, plan::FlopsOf(request_, compute));
  }

  std::string Of(const plan::Pull& pull) const {
    int64_t bytes = 0;
    std::vector<int> blocks;
    for (const plan::Pull::Item& item : pull.items) {
      const plan::Buffer& to = plan_.buffers[item.to];
      bytes += SliceBytes(request_, to.tensor, to.dtype, item.slice);
      if (to.tensor == TensorId::kK) Add(BlocksOf(item.slice.tokens), blocks);
    }
    return absl::StrFormat(
        "\"do\": \"pull\", \"peer\": %d, \"blocks\": %s, \"bytes\": %d",
        pull.peer, bench::Json(blocks), bytes);
  }

  std::string Of(const plan::Upload&) const { return "\"do\": \"upload\""; }
  std::string Of(const plan::Download&) const { return "\"do\": \"download\""; }
  std::string Of(const plan::Dot&) const { return "\"do\": \"dot\""; }
  std::string Of(const plan::Sum&) const { return "\"do\": \"sum\""; }
  std::string Of(const plan::Merge&) const { return "\"do\": \"merge\""; }

  const plan::PlanRequest& request_;
  const plan::Plan& plan_;
  const std::vector<Runs> rows_, blocks_;  // by device
};

}  // namespace

int64_t VisitedTiles(const RowIntervals& sees) {
  int64_t tiles = 0;
  for (int64_t row = 0; row < sees.rows; row += kTraceTile) {
    const int64_t last = std::min(row + kTraceTile, sees.rows) - 1;
    const Interval seen = sees.Rows(row, last);
    if (seen.empty()) continue;
    tiles += (seen.hi - 1) / kTraceTile - seen.lo / kTraceTile + 1;
  }
  return tiles;
}

std::string TraceJson(const plan::PlanRequest& request,
                      const plan::Plan& plan) {
  return Tracer(request, plan).Json();
}

}  // namespace attnd::bench
