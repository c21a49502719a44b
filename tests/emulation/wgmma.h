#ifndef ATTND_TESTS_EMULATION_WGMMA_H_
#define ATTND_TESTS_EMULATION_WGMMA_H_

// wgmma. A warp makes its 16 rows of the 64 alone, some time between the commit
// of their group and the wait for it. From start to end the accumulators are
// NaN to the warp's threads, and what they write there is lost.

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/attention.h"

namespace attnd::emulation {

struct Warp;

// D[64, n] (+)= A[64, 16] B[16, n].
struct WgmmaShape {
  int n = 0;
  DType type = DType::kF16;
  bool a_transposed = false;  // in memory it is [16, 64]
  bool b_transposed = false;  // in memory it is [n, 16]
  bool subtract = false;      // D -= A B
};

class WgmmaQueue {
 public:
  // `a_words`: of each lane, in place of the descriptor `a`; or null.
  struct Operation {
    WgmmaShape shape;
    bool accumulate;
    uint64_t a, b;
    const uint32_t* a_words[32];
    float* d[32];
  };

  void Fence() { fenced_ = true; }
  void Start(const Operation& operation);
  void Commit();
  // Makes the first group that is committed, if there is one.
  void MakeOne(Warp& warp);
  bool empty() const { return open_.empty() && groups_.empty(); }
  size_t committed() const { return groups_.size(); }

 private:
  struct Accumulator {
    float* d[32];
    int n;
    std::vector<float> values;  // [16, n]
    int operations = 0;         // that are left
  };
  struct Started {
    Operation operation;
    Accumulator* to;
  };
  Accumulator& AccumulatorOf(const Operation& operation);
  void Make(Warp& warp, const Started& started);

  bool fenced_ = false;
  std::vector<Started> open_;
  std::deque<std::vector<Started>> groups_;
  std::vector<std::unique_ptr<Accumulator>> accumulators_;
};

// For the warp of the thread that runs.
void FenceWgmma();
void StartWgmma(const WgmmaShape& shape, float* d, const uint32_t* a_words,
                uint64_t a, uint64_t b, bool accumulate);
void CommitWgmma();
void WaitForWgmma(size_t pending);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_WGMMA_H_
