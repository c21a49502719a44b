#ifndef ATTND_KERNELS_REFERENCE_FLASH_ATTENTION_1_H_
#define ATTND_KERNELS_REFERENCE_FLASH_ATTENTION_1_H_

// FlashAttention (Dao et al. 2022), Algorithms 1 and 4: K/V blocks outside, Q
// blocks inside. O is kept normalised, and O, m and l are read and rewritten in
// memory at every K/V block; dQ likewise in backward.

#include "kernels/reference/block.h"
#include "kernels/reference/head.h"

namespace attnd::reference {

// False: cancelled.
template <typename T>
bool FlashAttention1Forward(const Head<T>& head, BlockSizes blocks,
                            HeadForward<T>& out);
template <typename T>
bool FlashAttention1Backward(const Head<T>& head, BlockSizes blocks,
                             const HeadUpstream<T>& in, HeadGradients<T>& out);

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_FLASH_ATTENTION_1_H_
