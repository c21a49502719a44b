#ifndef ATTND_TESTS_BENCH_CPU_TORCH_PEER_H_
#define ATTND_TESTS_BENCH_CPU_TORCH_PEER_H_

#include <sys/types.h>

#include <cstdio>
#include <string>

#include "tests/bench/random_attention.h"

namespace attnd::bench {

// PyTorch's scaled_dot_product_attention for CPUs, in a process of its own:
// torch_peer.py.
class TorchPeer {
 public:
  // Starts `python`, which has torch, with as many threads for torch. Ends this
  // process if that fails.
  TorchPeer(const std::string& python, int threads);
  ~TorchPeer();
  TorchPeer(const TorchPeer&) = delete;
  TorchPeer& operator=(const TorchPeer&) = delete;

  const std::string& version() const { return version_; }

  // Seconds of one call on random f32 tensors of that shape.
  double Run(Op op, const AttentionShape& shape);

 private:
  std::string ReadLine();

  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string version_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_CPU_TORCH_PEER_H_
