#ifndef ATTND_KERNELS_CPU_FLASH_H_
#define ATTND_KERNELS_CPU_FLASH_H_

// How one task of the tiled kernels runs; flash_plan.h cuts a group into them.
// Each is computed by one thread in a fixed order and writes memory of its own,
// so results depend neither on the number of threads nor on what else is in the
// group.

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/tile.h"

namespace attnd::cpu {

// Each runs one task of the kind in its name. They return early, with their
// outputs undefined, once the problem is cancelled. Thread-safe as long as each
// thread has a Scratch of its own. `slabs` are the task's: FlashPlan::Slabs.
void RunFlashPackKv(const ForwardArgs& args, const FlashTask& task,
                    Scratch& scratch);
void RunFlashForward(const ForwardArgs& args, const FlashTask& task,
                     Scratch& scratch);
void RunFlashMerge(const ForwardArgs& args, const FlashTask& task,
                   Scratch& scratch);
void RunFlashPackQ(const BackwardArgs& args, const FlashTask& task);
// A block of the slab's columns after the other, from `first` on, which moves
// along. False: after one of them pause() was true, and some are left for
// another call, with any scratch.
bool RunFlashSlab(const BackwardArgs& args, const FlashTask& task,
                  absl::Span<const Slab> slabs, Scratch& scratch,
                  absl::FunctionRef<bool()> pause, int64_t& first);
void RunFlashSum(const BackwardArgs& args, const FlashTask& task,
                 absl::Span<const Slab> slabs);

// Zeros (and -inf for LSE) past the sequence's lengths.
void ClearForward(const ForwardArgs& args, const FlashTask& task);
void ClearBackward(const BackwardArgs& args, const FlashTask& task);

// The instruction set chosen at run time, as Highway names it.
const char* FlashTargetName();
// Whether bf16 is multiplied as it is, two elements at a time.
bool FlashDotsBF16();

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_FLASH_H_
