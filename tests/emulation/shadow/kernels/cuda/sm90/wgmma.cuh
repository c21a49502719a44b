#ifndef ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_SM90_WGMMA_CUH_
#define ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_SM90_WGMMA_CUH_

// In place of kernels/cuda/sm90/wgmma.cuh, which says what each function does.

#include <cstdint>

#include "kernels/cuda/tile/ptx.cuh"
#include "tests/emulation/wgmma.h"

namespace attnd::cuda::sm90::ptx {

inline void WgmmaFence() { emulation::FenceWgmma(); }
inline void WgmmaCommit() { emulation::CommitWgmma(); }
template <int kPending>
void WgmmaWait() {
  emulation::WaitForWgmma(kPending);
}
// The emulator's own calls keep registers where they are.
template <class T>
void Pin(T&) {}

constexpr uint64_t Descriptor(uint32_t address, uint32_t panel_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | uint64_t{panel_bytes >> 4} << 16 |
         (address >> 4);
}
constexpr uint64_t Advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

template <class T, int kN>
struct Wgmma {
  static constexpr DType kType = cuda::ptx::kFloat16<T>;
  using D = float[kN / 2];

  static void Nt(D& d, uint64_t a, uint64_t b, bool accumulate) {
    emulation::StartWgmma({kN, kType, false, true}, d, nullptr, a, b,
                          accumulate);
  }
  static void SubtractNt(D& d, uint64_t a, uint64_t b) {
    emulation::StartWgmma({kN, kType, false, true, true}, d, nullptr, a, b,
                          true);
  }
  static void Nn(D& d, uint64_t a, uint64_t b, bool accumulate) {
    emulation::StartWgmma({kN, kType, false, false}, d, nullptr, a, b,
                          accumulate);
  }
  static void Tn(D& d, uint64_t a, uint64_t b, bool accumulate) {
    emulation::StartWgmma({kN, kType, true, false}, d, nullptr, a, b,
                          accumulate);
  }
  static void Nn(D& d, const uint32_t* a, uint64_t b, bool accumulate) {
    emulation::StartWgmma({kN, kType, false, false}, d, a, 0, b, accumulate);
  }
};

}  // namespace attnd::cuda::sm90::ptx

#endif  // ATTND_TESTS_EMULATION_SHADOW_KERNELS_CUDA_SM90_WGMMA_CUH_
