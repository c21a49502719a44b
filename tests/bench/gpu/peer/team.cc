#include "tests/bench/gpu/peer/team.h"

#include <cstddef>
#include <cstdint>

#include "tests/bench/gpu/peer/kernels.h"

namespace attnd::bench {

Team::Team(int count) : access_(static_cast<size_t>(count) * count) {
  members_.reserve(count);
  for (int device = 0; device < count; ++device) MakeMember(device);
  for (int to = 0; to < count; ++to) {
    for (int from = 0; from < count; ++from) {
      if (to == from) continue;
      Open(to, from);
      has_pools_ &= access(to, from).pool;
    }
  }
  for (Member& member : members_) {
    Use(member.device);
    member.source = MakeBuffer(member);
    member.target = MakeBuffer(member);
    member.busy = MakeBuffer(member);
    for (std::byte* buffer : {member.source, member.busy}) {
      const int64_t words = kBufferBytes / sizeof(uint32_t);
      Check(Fill({.data = reinterpret_cast<uint32_t*>(buffer),
                  .width = words,
                  .pitch = words,
                  .seed = member.seed,
                  .source_pitch = words},
                 member.kernels));
    }
  }
  Synchronize();
}

void Team::Open(int to, int from) {
  Access& access = access_[to * size() + from];
  Use(to);
  Check(cudaDeviceCanAccessPeer(&access.can, to, from));
  Check(cudaDeviceGetP2PAttribute(&access.rank, cudaDevP2PAttrPerformanceRank,
                                  to, from));
  Check(cudaDeviceGetP2PAttribute(
      &access.has_atomics, cudaDevP2PAttrNativeAtomicSupported, to, from));
  if (access.can == 0) return;
  access.peer = cudaDeviceEnablePeerAccess(from, 0) == cudaSuccess;
  cudaMemPool_t pool = nullptr;
  Check(cudaDeviceGetDefaultMemPool(&pool, from));
  cudaMemAccessDesc grant = {};
  grant.location.type = cudaMemLocationTypeDevice;
  grant.location.id = to;
  grant.flags = cudaMemAccessFlagsProtReadWrite;
  access.pool = cudaMemPoolSetAccess(pool, &grant, 1) == cudaSuccess;
  // A refusal is a result here, not the next launch's error.
  cudaGetLastError();
}

void Team::MakeMember(int device) {
  Use(device);
  Member member;
  member.index = static_cast<int>(members_.size());
  member.device = device;
  member.seed = static_cast<uint32_t>(device) + 1;
  Check(cudaDeviceGetAttribute(&member.multiprocessors,
                               cudaDevAttrMultiProcessorCount, device));
  for (cudaStream_t* stream :
       {&member.copies[0], &member.copies[1], &member.kernels}) {
    Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }
  for (cudaEvent_t* event :
       {&member.copied[0], &member.copied[1], &member.computed}) {
    *event = MakeEvent(cudaEventDisableTiming);
  }
  for (cudaEvent_t* event :
       {&member.begin[0], &member.begin[1], &member.end[0], &member.end[1],
        &member.kernel_begin, &member.kernel_end}) {
    *event = MakeEvent(cudaEventDefault);
  }
  void* memory = nullptr;
  Check(cudaMalloc(&memory, sizeof(uint32_t)));
  member.wrong = static_cast<uint32_t*>(memory);
  Check(cudaMalloc(&memory, 4 * sizeof(uint64_t)));
  member.stamps = static_cast<uint64_t*>(memory);
  members_.push_back(member);
}

std::byte* Team::MakeBuffer(const Member& member) const {
  void* memory = nullptr;
  if (has_pools_) {
    Check(cudaMallocAsync(&memory, kBufferBytes, member.kernels));
    Check(cudaStreamSynchronize(member.kernels));
  } else {
    Check(cudaMalloc(&memory, kBufferBytes));
  }
  return static_cast<std::byte*>(memory);
}

void Team::Synchronize() {
  for (const Member& member : members_) {
    Use(member.device);
    Check(cudaDeviceSynchronize());
  }
}

}  // namespace attnd::bench
