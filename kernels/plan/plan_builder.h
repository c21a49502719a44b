#ifndef ATTND_KERNELS_PLAN_PLAN_BUILDER_H_
#define ATTND_KERNELS_PLAN_PLAN_BUILDER_H_

// What every kind of plan is put together with.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan/cuts.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_request.h"

namespace attnd::plan {

// Inputs and outputs that have rows, of one op.
absl::Span<const TensorId> RowInputs(Op op);
absl::Span<const TensorId> RowOutputs(Op op);
// Whether a tensor's tokens are columns, and its heads kv heads.
constexpr bool HasColumns(TensorId id) {
  return id == TensorId::kK || id == TensorId::kV || id == TensorId::kDK ||
         id == TensorId::kDV;
}
// The elements that a token has in one head; of a bias it depends on the slice.
int64_t TokenElements(const ProblemShape& shape, TensorId id);
// The bytes that such a slice takes.
int64_t SliceBytes(const PlanRequest& request, TensorId id, DType dtype,
                   const Slice& slice);

class PlanBuilder {
 public:
  PlanBuilder(const PlanRequest& request, int devices, PlanKind kind)
      : request_(request) {
    plan_.kind = kind;
    plan_.devices = devices;
  }

  const PlanRequest& request() const { return request_; }
  int devices() const { return plan_.devices; }
  const Buffer& buffer(int index) const { return plan_.buffers[index]; }

  // `reuses`: the buffer whose memory it takes over.
  int NewBuffer(int device, TensorId tensor, DType dtype, Slice slice,
                std::optional<int> reuses = std::nullopt);
  template <class What>
  int Add(int device, What what, std::vector<int> after) {
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    plan_.steps.push_back({device, std::move(what), std::move(after)});
    return static_cast<int>(plan_.steps.size()) - 1;
  }

  // All of the buffer, from the host; the step.
  int UploadAll(int buffer);
  // A slice of it.
  int UploadPart(int buffer, Slice slice);
  // A slice of K or V, from wherever that lies; appends the steps to `brought`.
  void BringColumns(int buffer, Slice slice, std::vector<int>& brought);
  void DownloadAll(int buffer, const std::vector<int>& after);

  // The slices of a sequence's tensors for some of its kv heads, of all of
  // those heads' q heads where it has such.
  Slice RowsOf(int32_t sequence, int64_t kv_head, int64_t kv_heads,
               const Run& rows) const;
  Slice ColumnsOf(int32_t sequence, int64_t kv_head, int64_t kv_heads,
                  const Run& columns) const {
    return {sequence, kv_head, kv_heads, columns, {}};
  }
  // Of a bias.
  Slice BiasOf(int32_t sequence, int64_t kv_head, int64_t kv_heads,
               const Run& rows, const Runs& columns) const;

  // With its costs.
  Plan Finish(std::string why, int sections = 1);

 private:
  // K or V of a sequence that lies on a device, and the step that says so.
  struct Range {
    int buffer = 0, step = 0;
  };
  Range RangeOn(int device, TensorId id, int32_t sequence, const Run& tokens);
  void Count(const Step& step);

  const PlanRequest& request_;
  Plan plan_;
  std::map<std::tuple<int, TensorId, int32_t>, Range> ranges_;
};

// The kinds, over `devices` >= 1.
Plan MakeHeads(const PlanRequest& request, int devices);
Plan MakeGather(const PlanRequest& request, int devices);
Plan MakeKv(const PlanRequest& request, int devices);
// kRing, kStriped or kZigzag, as the request says; of a forward, and of a
// backward by either transport.
Plan MakeRing(const PlanRequest& request, int devices);
Plan MakeRingBackward(const PlanRequest& request, int devices);
Plan MakePulledBackward(const PlanRequest& request, int devices);

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_PLAN_BUILDER_H_
