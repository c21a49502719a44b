#ifndef ATTND_KERNELS_REFERENCE_FLASH_ATTENTION_2_H_
#define ATTND_KERNELS_REFERENCE_FLASH_ATTENTION_2_H_

// FlashAttention-2 (Dao 2023): Q blocks outside, so that the state of a block
// of rows (unnormalised O, m, l) stays on chip from its first column to its
// last and O is divided once. Backward is two kernels: dK and dV by K/V blocks,
// dQ by Q blocks. Each output has one writer, which makes both deterministic,
// at the price of computing S and dP twice.

#include "kernels/reference/block.h"
#include "kernels/reference/head.h"

namespace attnd::reference {

// False: cancelled.
template <typename T>
bool FlashAttention2Forward(const Head<T>& head, BlockSizes blocks,
                            HeadForward<T>& out);
template <typename T>
bool FlashAttention2Backward(const Head<T>& head, BlockSizes blocks,
                             const HeadUpstream<T>& in, HeadGradients<T>& out);

}  // namespace attnd::reference

#endif  // ATTND_KERNELS_REFERENCE_FLASH_ATTENTION_2_H_
