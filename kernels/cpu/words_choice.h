#ifndef ATTND_KERNELS_CPU_WORDS_CHOICE_H_
#define ATTND_KERNELS_CPU_WORDS_CHOICE_H_

// Which bf16 sequences BF16 dot products serve. The instruction takes
// subnormal numbers for 0, as operands and as results, so a sequence's words
// are f32 where that would show:
//
//   - an element of Q, K, V or dO is not 0 but below 2^-51. Where none is, the
//     product of two is at least 2^-102, and what is lost of a sum, below
//     2^-126, is no more than f32 rounds off it;
//   - the scale is so large that it brings back what P and dS have lost.
//
// Scores, which backward must find as forward did, depend on Q, K, V and the
// scale alone, and the choice on nothing but the sequence.

#include "absl/types/span.h"
#include "kernels/attention.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/thread_pool.h"

namespace attnd::cpu {

// Sets f32_scores and f32_words of the plan's tasks, having looked through the
// group's inputs on `pool`.
void ChooseWords(absl::Span<const ForwardArgs> group, ThreadPool& pool,
                 FlashPlan& plan);
void ChooseWords(absl::Span<const BackwardArgs> group, ThreadPool& pool,
                 FlashPlan& plan);

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_WORDS_CHOICE_H_
