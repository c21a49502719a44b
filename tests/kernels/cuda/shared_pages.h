#ifndef ATTND_TESTS_KERNELS_CUDA_SHARED_PAGES_H_
#define ATTND_TESTS_KERNELS_CUDA_SHARED_PAGES_H_

// Host memory to be pinned piece by piece, and what to fill it with.

#include <sys/mman.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/descriptor.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace attnd::testing {

// Whole pages of a memfd, mapped where a piece begins.
class SharedPages {
 public:
  explicit SharedPages(int64_t bytes)
      : bytes_(bytes), memory_(memfd_create("pages", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(memory_.get(), bytes), 0);
    reserved_ = mmap(nullptr, bytes + kPinnedPieceBytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(reserved_, MAP_FAILED);
    const auto at = reinterpret_cast<uintptr_t>(reserved_);
    void* first = reinterpret_cast<void*>(
        (at + kPinnedPieceBytes - 1) / kPinnedPieceBytes * kPinnedPieceBytes);
    data_ = static_cast<std::byte*>(mmap(first, bytes, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                                         memory_.get(), 0));
    EXPECT_EQ(data_, first);
  }
  ~SharedPages() { munmap(reserved_, bytes_ + kPinnedPieceBytes); }

  HostSpan all() const { return {data_, static_cast<size_t>(bytes_)}; }
  // By pieces, the last of which is smaller.
  std::vector<HostSpan> pieces() const {
    std::vector<HostSpan> pieces;
    for (int64_t at = 0; at < bytes_; at += kPinnedPieceBytes) {
      pieces.push_back(all().subspan(at, kPinnedPieceBytes));
    }
    return pieces;
  }

 private:
  const int64_t bytes_;
  const Descriptor memory_;
  void* reserved_ = nullptr;
  std::byte* data_ = nullptr;
};

inline void FillRandomly(uint32_t seed, HostSpan bytes) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    const uint64_t bits = random();
    std::memcpy(bytes.data() + at, &bits, 8);
  }
}

inline bool Same(ConstHostSpan a, ConstHostSpan b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_SHARED_PAGES_H_
