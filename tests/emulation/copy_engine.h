#ifndef ATTND_TESTS_EMULATION_COPY_ENGINE_H_
#define ATTND_TESTS_EMULATION_COPY_ENGINE_H_

// The copy engine (TMA). From its start to its end, which an mbarrier says,
// what a copy writes is NaN.

#include <cuda.h>

#include <cstdint>

namespace attnd::emulation {

// A box of a tensor to shared memory.
void StartBoxLoad(uint32_t to, const CUtensorMap* map, const int (&at)[4],
                  uint32_t mbarrier);
// Bytes in a row.
void StartBulkLoad(uint32_t to, const void* from, uint32_t bytes,
                   uint32_t mbarrier);
// Reads them, so that sanitizers see where they are nobody's.
void BulkPrefetch(const void* from, uint32_t bytes);
// Bytes in a row of this block's shared memory to that of a block of the
// cluster.
void StartBulkSend(uint32_t to, uint32_t from, uint32_t bytes,
                   uint32_t mbarrier);
// A word to shared memory of a block of the cluster.
void StartStore(uint32_t to, uint32_t value, uint32_t mbarrier);
// A box from shared memory, in the thread's open group of stores.
void StartBoxStore(const CUtensorMap* map, const int (&at)[4], uint32_t from);
// Adds floats in a row of shared memory to memory, in the same group.
void StartBulkAdd(float* to, uint32_t from, uint32_t bytes);

// What this thread has stored to shared memory may be read by wgmma and the
// copy engine.
void FenceForAsync();

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_COPY_ENGINE_H_
