#ifndef ATTND_KERNELS_PLAN_PLAN_H_
#define ATTND_KERNELS_PLAN_PLAN_H_

// A plan: what several devices do to compute one group of problems together, as
// data. It names no memory, so that it can be printed, checked (validate.h),
// costed (cost.h) and run on any kind of device (team/plan_run.h). Equal
// requests give equal plans.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/plan/run.h"
#include "kernels/plan_kind.h"
#include "kernels/request.h"

namespace attnd::plan {

// A part of one tensor of one sequence: tokens, which are rows of Q and what is
// like it and columns of K, V, dK and dV, of some heads, which are q heads and
// kv heads likewise. A bias has rows of q heads, or of one head for all, and of
// each row the columns of some runs, one after another.
struct Slice {
  int32_t sequence = 0;  // in PlanRequest::sequences
  int64_t head = 0, heads = 0;
  Run tokens;
  std::vector<Run> columns;  // of a bias

  friend bool operator==(const Slice&, const Slice&) = default;
};

// Memory of a device that holds a slice.
struct Buffer {
  int device = 0;
  TensorId tensor = TensorId::kQ;
  DType dtype = DType::kF32;
  Slice slice;
  // An earlier buffer of the device that nobody needs any more when this one is
  // written, and whose memory this one takes over; or one of the same slice, in
  // f32, to which the part adds that writes this one. Each is taken over once
  // at most, and that memory is as large as the largest that is ever in it.
  std::optional<int> reuses = {};
};

// From and to the host's memory, which holds all inputs and gets all outputs.
struct Upload {
  int to = 0;  // a buffer, as all of these
  Slice slice;
  // Whether that is memory in which it lies already (InputsLie::kByRanges).
  bool lies_there = false;
};
struct Download {
  int from = 0;
  Slice slice;
};
// From another device's buffers, all of them at once; or from the device's own,
// where inputs lie on devices and not as the plan wants them.
struct Pull {
  struct Item {
    int from = 0, to = 0;
    Slice slice;
  };
  int peer = 0;  // that device
  std::vector<Item> items;
};
// Columns in one run, and the buffers of its K, V, dK and dV.
struct Columns {
  Run run;
  int k = 0, v = 0;
  std::optional<int> dk = {}, dv = {};
  // What these are added to, f32, of other rows over the same columns.
  std::optional<int> dk_before = {}, dv_before = {};
};
// Buffers of O, where that is wanted, and of LSE, both f32: results of some
// rows over some columns, to be merged with those over others.
struct State {
  std::optional<int> o = {};
  int lse = 0;
};
// Some rows of some heads of a sequence over some of its columns.
struct Part {
  int32_t sequence = 0;
  int64_t kv_head = 0, kv_heads = 0;
  Run rows;
  std::vector<Columns> columns = {};
  // Of what has rows.
  PerTensor<std::optional<int>> buffers = {};
  // Of a forward: what the results are merged with, so that they are over both
  // sets of columns. Other parts merge with them again where they are f32.
  std::optional<State> before = {};
  // Of a backward: what dQ is added to, f32, of the same rows over other
  // columns.
  std::optional<int> dq_before = {};
};
// One launch of kernels for all of its parts.
struct Compute {
  std::vector<Part> parts;
};
// delta of some rows and q heads: buffers of dO, O and delta.
struct Dot {
  int d_o = 0, o = 0, delta = 0;
  Slice slice;
};
// to = the terms' sum, in this order; 0 if there are none.
struct Sum {
  std::vector<int> terms;
  int to = 0;
  Slice slice;
};
// Some rows' results over all columns that any of the terms is over, (E19) and
// (E20), merged in this order; of no terms O is 0 and LSE -inf. Either result
// may not be wanted, and terms have O where it is.
struct Merge {
  std::vector<State> terms;
  std::optional<int> o = {}, lse = {};
  Slice slice;
};

struct Step {
  int device = 0;  // which does it
  std::variant<Upload, Pull, Compute, Dot, Sum, Merge, Download> what;
  // Steps that must have happened, each of them earlier in Plan::steps.
  std::vector<int> after;
};

// Whether a forward's results have one device's bits: each row meets all its
// columns in their order, and rows are cut where CutUnit says. In the kinds
// that send columns round each device begins with its own, and in kKv results
// over a device's columns are merged.
constexpr bool HasOneDevicesBits(PlanKind kind) {
  return !GoesRound(kind) && kind != PlanKind::kKv;
}

struct PlanCost {
  struct Device {
    int64_t memory_bytes = 0;    // of its buffers, what is reused once
    int64_t uploaded_bytes = 0;  // from the host
    int64_t pulled_bytes = 0;    // from other devices
    double flops = 0;            // as Request::flops counts them
  };
  std::vector<Device> devices;
};

struct Plan {
  PlanKind kind = PlanKind::kHeads;
  int devices = 0;
  std::vector<Buffer> buffers;
  // In an order in which one thread could do them. Devices do their own in this
  // order.
  std::vector<Step> steps;
  int sections = 1;  // of heads, in which data is pulled
  PlanCost cost;
  std::string why;
};

}  // namespace attnd::plan

#endif  // ATTND_KERNELS_PLAN_PLAN_H_
