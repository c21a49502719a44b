// cpu_attention_bench: the CPU kernels against OpenBLAS's sgemm, PyTorch's
// attention, the processor's multiply-adds and the memory's bandwidth, on the
// same threads, in turns.
//
//   --rounds=N      after one to warm up (default 9)
//   --threads=N     of every side (default: all)
//   --torch=PYTHON  a Python that has torch; without it PyTorch is left out
//   --only=TEXT     comparisons whose names contain it
//   --target=NAME   of the kernels: AVX3, AVX2, .. (default: the best)
//   --check         fails below the bars

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "tests/bench/clock.h"
#include "tests/bench/cpu/comparison.h"
#include "tests/bench/cpu/fma_peak.h"
#include "tests/bench/cpu/machine_peers.h"
#include "tests/bench/cpu/torch_peer.h"
#include "tests/bench/random_attention.h"
#include "tests/bench/stats.h"
// After targets.h, which decides what there is.
#include "hwy/highway.h"

namespace attnd::bench {
namespace {

constexpr double kCancelBarMs = 100;

struct Options {
  int rounds = 9;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::string torch, only, target;
  bool check = false;
};

const char* Name(Op op) { return op == Op::kForward ? "forward" : "backward"; }
const char* Name(DType dtype) {
  return dtype == DType::kF32 ? "f32" : dtype == DType::kF16 ? "f16" : "bf16";
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        backend_(Create(options.threads)),
        stream_(std::move(backend_->NewStream()).value()),
        sgemm_(options.threads) {
    if (!options.torch.empty()) {
      torch_ = std::make_unique<TorchPeer>(options.torch, options.threads);
    }
  }

  // Whether every bar was met.
  bool Run() {
    std::printf(
        "%s, %d threads, %s / %s, PyTorch %s, medians of %d rounds\n",
        backend_->device().name.c_str(), options_.threads,
        backend_->Kernel(Op::kForward, Shape(DType::kF32), {}).name.c_str(),
        backend_->Kernel(Op::kForward, Shape(DType::kBF16), {}).name.c_str(),
        torch_ ? torch_->version().c_str() : "left out", options_.rounds);
    std::printf("%-34s %7s %-7s %-10s %7s  %5s  %4s\n", "", "ours", "", "peer",
                "", "ratio", "bar");
    bool passed = true;
    for (int64_t len : {2048, 8192}) {
      for (int64_t dim : {64, 128}) passed = Products(len, 8, dim) && passed;
    }
    for (int64_t len : {2048, 8192}) {
      for (int64_t dim : {64, 128}) passed = Products(len, 1, dim) && passed;
    }
    passed = Types() && passed;
    passed = Decode() && passed;
    passed = SmallProblems() && passed;
    return Rest() && passed;
  }

 private:
  static std::unique_ptr<Backend> Create(int threads) {
    auto backend = CreateCpuBackend({.threads = threads});
    Require(backend.status());
    return *std::move(backend);
  }
  static Problem Shape(DType dtype) {
    Problem problem;
    problem.q.dtype = dtype;
    return problem;
  }

  bool Wanted(const std::string& name) const {
    return name.find(options_.only) != std::string::npos;
  }
  bool Compare(Comparison comparison) {
    return RunComparisons({std::move(comparison)}, options_.rounds);
  }
  Side Ours(Op op, RandomAttention& attention) {
    return {"attnd", attention.shape().flops(op),
            [&, op] { return Time([&] { attention.Run(op, *stream_); }); }};
  }

  // f32 self-attention against sgemm, PyTorch and the processor's peak.
  bool Products(int64_t len, int64_t heads, int64_t dim) {
    bool passed = true;
    for (const bool causal : {false, true}) {
      std::unique_ptr<RandomAttention> attention;
      for (const Op op : {Op::kForward, Op::kBackward}) {
        char name[64];
        std::snprintf(name, sizeof(name), "%-8s %s %ldh D%-3ld S%ld", Name(op),
                      causal ? "causal" : "full  ", long{heads}, long{dim},
                      long{len});
        if (!Wanted(name)) continue;
        const AttentionShape shape =
            SelfAttention(len, heads, dim, DType::kF32, causal);
        if (attention == nullptr) {
          attention = std::make_unique<RandomAttention>(shape);
          attention->Run(Op::kForward, *stream_);
        }
        const bool forward = op == Op::kForward;
        Comparison c{name, "GFLOP/s", Ours(op, *attention), {}};
        if (heads > 1) {
          c.peers.push_back(
              {{"sgemm", Sgemm::kFlops, [&] { return sgemm_.Run(); }},
               !forward ? .5
               : causal ? .55
                        : .65});
        }
        if (torch_ != nullptr) {
          const double bar = forward || heads > 1 ? 1.2 : 1.8;
          c.peers.push_back(
              {{"PyTorch", shape.flops(op),
                [this, op, shape] { return torch_->Run(op, shape); }},
               bar});
        }
        c.peers.push_back(
            {{"FMA peak", kFmaFlops * options_.threads,
              [this] { return FmaPeakSeconds(options_.threads); }},
             0});
        passed = Compare(std::move(c)) && passed;
      }
    }
    return passed;
  }

  // 16 bits against f32.
  bool Types() {
    const bool dot =
        backend_->Kernel(Op::kForward, Shape(DType::kBF16), {}).name !=
        backend_->Kernel(Op::kForward, Shape(DType::kF32), {}).name;
    bool passed = true;
    for (const int64_t dim : {64, 128}) {
      RandomAttention f32(SelfAttention(2048, 8, dim));
      f32.Run(Op::kForward, *stream_);
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        RandomAttention attention(SelfAttention(2048, 8, dim, dtype));
        attention.Run(Op::kForward, *stream_);
        for (const Op op : {Op::kForward, Op::kBackward}) {
          char name[64];
          std::snprintf(name, sizeof(name), "%-8s %-4s 8h D%ld S2048", Name(op),
                        Name(dtype), long{dim});
          if (!Wanted(name)) continue;
          Comparison c{name, "GFLOP/s", Ours(op, attention), {}};
          c.peers.push_back(
              {Ours(op, f32), dot && dtype == DType::kBF16 ? 1.3 : 1.0});
          c.peers[0].side.name = "f32";
          passed = Compare(std::move(c)) && passed;
        }
      }
    }
    return passed;
  }

  // One query against the bandwidth with which K and V can be read at all.
  bool Decode() {
    bool passed = true;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::string name =
          std::string("decode   ") + Name(dtype) + " 32/8h D128 S16384";
      if (!Wanted(name)) continue;
      const AttentionShape shape{1, 16384, 32, 8, 128, dtype};
      RandomAttention attention(shape);
      const KvSegment& kv = attention.problem().kv[0];
      Comparison c{name, "GB/s", Ours(Op::kForward, attention), {}};
      c.ours.work = shape.kv_bytes();
      c.peers.push_back({{"sum", shape.kv_bytes(),
                          [&] {
                            const double half = shape.kv_bytes() / 2;
                            return SumSeconds(kv.k, half, options_.threads) +
                                   SumSeconds(kv.v, half, options_.threads);
                          }},
                         .7});
      if (torch_ != nullptr && dtype == DType::kF32) {
        c.peers.push_back({{"PyTorch", shape.kv_bytes(),
                            [&] { return torch_->Run(Op::kForward, shape); }},
                           0});
      }
      passed = Compare(std::move(c)) && passed;
    }
    return passed;
  }

  // 64 problems of 64 x 64 against one of 512 x 512, which has their FLOPs.
  bool SmallProblems() {
    constexpr int kRepeats = 20;
    std::vector<std::unique_ptr<RandomAttention>> small;
    std::vector<ForwardArgs> forward;
    std::vector<BackwardArgs> backward;
    for (int i = 0; i < 64; ++i) {
      small.push_back(
          std::make_unique<RandomAttention>(SelfAttention(64, 1, 64)));
      forward.push_back(small.back()->forward());
      backward.push_back(small.back()->backward());
    }
    RandomAttention one(SelfAttention(512, 1, 64));
    one.Run(Op::kForward, *stream_);
    bool passed = true;
    for (const Op op : {Op::kForward, Op::kBackward}) {
      const std::string name =
          std::string("64 of 64x64 ") + Name(op) + " 1h D64";
      if (!Wanted(name)) continue;
      Require(stream_->Forward(forward, {}));  // what backward reads
      const double work = kRepeats * one.shape().flops(op);
      const auto repeat = [](auto run) {
        return Time([&] {
          for (int i = 0; i < kRepeats; ++i) run();
        });
      };
      Comparison c{name,
                   "GFLOP/s",
                   {"attnd", work,
                    [&, op] {
                      return repeat([&] {
                        Require(op == Op::kForward
                                    ? stream_->Forward(forward, {})
                                    : stream_->Backward(backward, {}));
                      });
                    }},
                   {}};
      c.peers.push_back(
          {{"one 512", work,
            [&, op] { return repeat([&] { one.Run(op, *stream_); }); }},
           .8});
      passed = Compare(std::move(c)) && passed;
    }
    return passed;
  }

  // What no peer is measured for.
  bool Rest() {
    if (!options_.only.empty()) return true;
    std::printf("smallest problem: %.2f us\n", SmallestUs());
    bool passed = true;
    for (const Op op : {Op::kForward, Op::kBackward}) {
      const double ms = CancelMs(op);
      std::printf("cancel %s to lane free: %.1f ms, bar %.0f%s\n", Name(op), ms,
                  kCancelBarMs, ms > kCancelBarMs ? "  ABOVE" : "");
      passed = passed && ms <= kCancelBarMs;
    }
    return passed;
  }

  // Microseconds of one query and one key: what a tiny request pays.
  double SmallestUs() {
    RandomAttention tiny(SelfAttention(1, 1, 64));
    std::vector<double> us;
    for (int i = 0; i < 2000; ++i) {
      us.push_back(1e6 * Time([&] { tiny.Run(Op::kForward, *stream_); }));
    }
    return Median(std::move(us));
  }

  // Milliseconds from cancelling a request of some seconds, once it has run for
  // a while, to its lane being free.
  double CancelMs(Op op) {
    RandomAttention attention(SelfAttention(16384, 8, 128));
    double cancelled = 0;
    std::thread client([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      cancelled = Seconds();
      attention.cancel.Cancel();
    });
    attention.Run(op, *stream_);
    const double free = Seconds();
    client.join();
    return 1e3 * (free - cancelled);
  }

  const Options options_;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Stream> stream_;
  std::unique_ptr<TorchPeer> torch_;
  Sgemm sgemm_;
};

// Has the kernels use an instruction set of Highway's; false if there is none
// of that name.
bool Choose(const std::string& target) {
  for (const int64_t t : hwy::SupportedAndGeneratedTargets()) {
    if (target != hwy::TargetName(t)) continue;
    hwy::SetSupportedTargetsForTest(t);
    return true;
  }
  return false;
}

// False if an argument is none of ours.
bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&](const std::string& flag) -> const char* {
      return arg.rfind(flag, 0) == 0 ? argv[i] + flag.size() : nullptr;
    };
    if (arg == "--check") {
      options->check = true;
    } else if (const char* rounds = value("--rounds=")) {
      options->rounds = std::atoi(rounds);
    } else if (const char* threads = value("--threads=")) {
      options->threads = std::atoi(threads);
    } else if (const char* torch = value("--torch=")) {
      options->torch = torch;
    } else if (const char* only = value("--only=")) {
      options->only = only;
    } else if (const char* target = value("--target=")) {
      options->target = target;
    } else {
      return false;
    }
  }
  return options->rounds >= 1 && options->threads >= 1;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  if (!attnd::bench::Parse(argc, argv, &options)) {
    std::fprintf(stderr,
                 "usage: %s [--rounds=N] [--threads=N] [--torch=PYTHON] "
                 "[--only=TEXT] [--target=NAME] [--check]; N at least 1\n",
                 argv[0]);
    return 2;
  }
  if (!options.target.empty() && !attnd::bench::Choose(options.target)) {
    std::fprintf(stderr, "this machine has no kernels for %s\n",
                 options.target.c_str());
    return 2;
  }
  const bool passed = attnd::bench::Bench(options).Run();
  return options.check && !passed ? 1 : 0;
}
