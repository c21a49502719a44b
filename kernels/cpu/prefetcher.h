#ifndef ATTND_KERNELS_CPU_PREFETCHER_H_
#define ATTND_KERNELS_CPU_PREFETCHER_H_

#include <array>
#include <cstdint>

namespace attnd::cpu {

// Rows of memory that are wanted soon, asked for a few cache lines at a time
// while something else is computed, so that nobody waits for them: the rows of
// one head are often far apart, a stride that no hardware prefetcher follows.
class Prefetcher {
 public:
  void Clear() {
    rows_ = next_ = lines_a_step_ = 0;
    lines_ = at_ = 0;
  }

  // `bytes` from `row` on; beyond kMost rows nothing.
  void Add(const void* row, int64_t bytes) {
    if (rows_ == kMost || bytes <= 0) return;
    row_[rows_++] = {static_cast<const char*>(row), bytes};
    lines_ += bytes / kLine + 1;
  }

  // That many steps ask for everything.
  void SpreadOver(int64_t steps) {
    lines_a_step_ = static_cast<int>((lines_ + steps - 1) / steps);
  }

  // The next lines, into the L2 cache.
  void Step() {
    for (int i = 0; i < lines_a_step_ && next_ < rows_; ++i) {
      const Row& row = row_[next_];
      __builtin_prefetch(row.data + at_, /*rw=*/0, /*locality=*/2);
      at_ += kLine;
      if (at_ >= row.bytes) {
        at_ = 0;
        ++next_;
      }
    }
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes
  static constexpr int kMost = 256;
  struct Row {
    const char* data;
    int64_t bytes;
  };

  int rows_ = 0, next_ = 0;
  int lines_a_step_ = 0;
  int64_t lines_ = 0;
  int64_t at_ = 0;  // bytes of the next row that have been asked for
  std::array<Row, kMost> row_;
};

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_PREFETCHER_H_
