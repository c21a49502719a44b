#ifndef ATTND_TESTS_BENCH_GPU_PEER_TEAM_H_
#define ATTND_TESTS_BENCH_GPU_PEER_TEAM_H_

// The GPUs of one process: their streams and memory, and which each may read of
// the others. For one thread.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/bench/gpu/peer/calls.h"

namespace attnd::bench {

inline constexpr size_t kMiB = size_t{1} << 20;
// What `source`, `target` and `busy` of each member have.
inline constexpr size_t kBufferBytes = 512 * kMiB;

struct Member {
  int index = 0;  // in the team
  int device = 0;
  int multiprocessors = 0;
  cudaStream_t copies[2] = {};
  cudaStream_t kernels = nullptr;
  // Without times.
  cudaEvent_t copied[2] = {};  // of `copies`
  cudaEvent_t computed = nullptr;
  // With times.
  cudaEvent_t begin[2] = {}, end[2] = {};  // of `copies`
  cudaEvent_t kernel_begin = nullptr, kernel_end = nullptr;

  std::byte* source = nullptr;  // random words of `seed`
  std::byte* target = nullptr;  // where copies go
  std::byte* busy = nullptr;    // what kernels read and write
  uint32_t* wrong = nullptr;
  uint64_t* stamps = nullptr;  // 4 of them
  uint32_t seed = 0;
};

// Whether a member may read another's memory.
struct Access {
  int can = 0;          // cudaDeviceCanAccessPeer
  bool peer = false;    // whether peer access is on
  bool pool = false;    // whether the pool of the other lets it in
  int rank = -1;        // cudaDevP2PAttrPerformanceRank: 0 is best
  int has_atomics = 0;  // cudaDevP2PAttrNativeAtomicSupported
};

class Team {
 public:
  // Makes streams and memory on devices 0 to count - 1 and opens each to each.
  // Only the process' end gives anything back.
  explicit Team(int count);

  int size() const { return static_cast<int>(members_.size()); }
  Member& operator[](int index) { return members_[index]; }
  // Of a ring of the first `ring` members, the one after `member`.
  Member& Next(const Member& member, int ring) {
    return members_[(member.index + 1) % ring];
  }
  const Access& access(int to, int from) const {
    return access_[to * size() + from];
  }
  // Whether buffers are from the devices' default pools, which all members may
  // read: otherwise they are from cudaMalloc.
  bool has_pools() const { return has_pools_; }
  Gate& gate() { return gate_; }
  void Synchronize();

 private:
  void Open(int to, int from);
  void MakeMember(int device);
  std::byte* MakeBuffer(const Member& member) const;

  std::vector<Member> members_;
  std::vector<Access> access_;  // [to, from]
  bool has_pools_ = true;
  Gate gate_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PEER_TEAM_H_
