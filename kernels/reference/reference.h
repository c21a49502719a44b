#ifndef ATTND_KERNELS_REFERENCE_REFERENCE_H_
#define ATTND_KERNELS_REFERENCE_REFERENCE_H_

// The algorithms as their papers give them, over the whole contract: one
// thread, written to be read. See kernels/README.md for the equations.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention.h"

namespace attnd::reference {

// Runs a valid problem (see request.h) in float; kNaive rounds P and dS to the
// inputs' type, which makes it the plain computation. kAuto is refused with
// INVALID_ARGUMENT. CANCELLED when the problem's token says so. Thread-safe:
// calls share nothing.
absl::Status Forward(const ForwardArgs& args, Algorithm algorithm);
absl::Status Backward(const BackwardArgs& args, Algorithm algorithm);

// The most memory that Forward or Backward takes beside inputs and outputs.
// Saturates at the largest int64_t.
int64_t ScratchBytes(Op op, const Problem& problem, Algorithm algorithm);

// Floating-point operations over all pairs that the algorithm visits: every one
// of them, or for FlashAttention every one of blocks that hold an unmasked one.
// Counted as Request::flops() counts.
double VisitedFlops(Op op, const Problem& problem, Algorithm algorithm);

// What everything is judged by: the naive algorithm in double, not rounded.
// Contiguous; what lies past a sequence's lengths is as in the contract.
struct ExactForward {
  std::vector<double> o;    // [batch, q_len, q_heads, value_dim]
  std::vector<double> lse;  // [batch, q_heads, q_len]
};
struct ExactBackward {
  std::vector<double> dq;  // [batch, q_len, q_heads, head_dim]
  // Of each segment: [batch, len, kv_heads, head_dim or value_dim].
  std::vector<std::vector<double>> dk, dv;
};
ExactForward OracleForward(const Problem& problem);
// Reads the arguments' inputs; their outputs may be null, and what those are
// added to is left out.
ExactBackward OracleBackward(const BackwardArgs& args);

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_REFERENCE_H_
