#ifndef ATTND_SERVER_PROGRAM_HEAP_H_
#define ATTND_SERVER_PROGRAM_HEAP_H_

// How attnd sets up the C library's allocator, for whoever is to run as it
// does.

#include <cstdint>

namespace attnd::server {

// Bounds what glibc keeps of freed memory, which no account sees: every arena
// would keep its own share of what gRPC received at its busiest. Up to a
// sixteenth of the limit stays at hand, as fresh pages cost more than the copy
// into them. For the whole process, best before it has threads.
void LimitHeap(int64_t memory_limit_bytes);

// What it has given out and not got back.
int64_t HeapInUse();

// Gives back what glibc keeps of freed memory, between blocks in use as well,
// but for what is free at the top of its second arena: at most that sixteenth.
// Takes milliseconds where there is much of it, in which others wait who want
// memory: for when there is little to do.
void ReleaseFreeHeap();

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_HEAP_H_
