#ifndef ATTND_KERNELS_CPU_FLASH_H_
#define ATTND_KERNELS_CPU_FLASH_H_

// The tiled kernel: what it is cut into, and how one piece runs. Each task is
// computed by one thread in a fixed order and writes its own part of the
// outputs, so results depend neither on the number of threads nor on what else
// is in the group.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cpu/tile.h"

namespace attnd {

struct FlashTask {
  enum class Kind : uint8_t {
    kForward,  // O and LSE of q rows
    kDq,       // dQ of q rows
    kDkv,      // dK and dV of columns, over all q heads of the kv head
    kEmpty,    // outputs of sequence b's tokens past its lengths
  };
  Kind kind = Kind::kForward;
  int64_t problem = 0;  // in its group
  int64_t b = 0;
  int64_t head = 0;   // the first q head, or for kDkv the kv head
  int64_t heads = 0;  // q heads, all of one kv head
  int64_t first = 0;  // q rows or columns [first, first + count)
  int64_t count = 0;
  double flops = 0;
};

// Whether the problem has any output element; without one a batch may be of
// any size at no cost to whoever asks.
bool HasOutputs(Op op, const Problem& problem);

// Tasks of a whole group, those that take longest first.
std::vector<FlashTask> PlanForward(absl::Span<const ForwardArgs> group);
std::vector<FlashTask> PlanBackward(absl::Span<const BackwardArgs> group);

// Runs one task of the kind in its name. Returns early, with its outputs
// undefined, once the problem is cancelled. Thread-safe as long as each thread
// has a Scratch of its own.
void RunFlashForward(const ForwardArgs& args, const FlashTask& task,
                     Scratch& scratch);
void RunFlashDq(const BackwardArgs& args, const FlashTask& task,
                Scratch& scratch);
void RunFlashDkv(const BackwardArgs& args, const FlashTask& task,
                 Scratch& scratch);

// Zeros (and -inf for LSE) past the sequence's lengths.
void ClearForward(const ForwardArgs& args, const FlashTask& task);
void ClearBackward(const BackwardArgs& args, const FlashTask& task);

// The memory that `threads` workers take at most to run the problem, beside
// its inputs and outputs.
int64_t FlashScratchBytes(const Problem& problem, int threads);

// The instruction set chosen at run time, as Highway names it.
const char* FlashTargetName();

}  // namespace attnd

#endif  // ATTND_KERNELS_CPU_FLASH_H_
