// cpu_attention_bench: the CPU kernels against OpenBLAS's sgemm on the same
// threads, in rounds that run everything once, so that what the machine does
// to one it does to all. The bars are for f32; f16 shows what conversion costs.
//
//   --rounds=N   rounds after one to warm up (default 9)
//   --threads=N  of the kernels and of sgemm (default: all)
//   --check      fails below the bars

#include <cblas.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/bench/clock.h"
#include "tests/bench/self_attention.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

constexpr double kForwardBar = 0.35;
constexpr double kBackwardBar = 0.25;
constexpr double kCancelBarMs = 100;

class Sgemm {
 public:
  void Run() {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize,
                1, a_.data(), kSize, b_.data(), kSize, 0, c_.data(), kSize);
  }
  static constexpr double kFlops = 2.0 * 2048 * 2048 * 2048;

 private:
  static constexpr int kSize = 2048;
  static std::vector<float> Random() {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(kSize * kSize);
    for (float& v : x) v = normal(random);
    return x;
  }
  std::vector<float> a_ = Random(), b_ = Random(), c_ = Random();
};

struct Row {
  std::string name;
  std::unique_ptr<SelfAttention> attention;
  Op op = Op::kForward;
  double bar = 0;  // of sgemm's GFLOP/s; 0: none
  std::vector<double> seconds = {};
  double flops() const { return attention->flops(op); }
  void Run(Stream& stream) { attention->Run(op, stream); }
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  const auto add = [&](std::string name, int64_t dim, DType dtype, bool causal,
                       Op op, double bar) {
    rows.push_back(
        {std::move(name),
         std::make_unique<SelfAttention>(2048, 8, dim, dtype, causal), op,
         bar});
  };
  const auto pair = [&](const std::string& name, int64_t dim, DType dtype,
                        bool causal, bool bars) {
    add("forward  " + name, dim, dtype, causal, Op::kForward,
        bars ? kForwardBar : 0);
    add("backward " + name, dim, dtype, causal, Op::kBackward,
        bars ? kBackwardBar : 0);
  };
  pair("f32  D64  full", 64, DType::kF32, false, true);
  pair("f32  D128 full", 128, DType::kF32, false, true);
  pair("f32  D64  causal", 64, DType::kF32, true, false);
  pair("bf16 D64  full", 64, DType::kBF16, false, false);
  pair("f16  D128 full", 128, DType::kF16, false, false);
  return rows;
}

// Microseconds of one query and one key: what a tiny request pays.
double SmallestUs(Stream& stream) {
  SelfAttention tiny(1, 1, 64, DType::kF32, false);
  std::vector<double> us;
  for (int i = 0; i < 2000; ++i) {
    us.push_back(1e6 * Time([&] { tiny.Run(Op::kForward, stream); }));
  }
  return Median(std::move(us));
}

// Milliseconds from cancelling a request of some seconds, once it has run for
// a while, to its lane being free.
double CancelMs(Stream& stream, Op op) {
  SelfAttention attention(16384, 8, 128, DType::kF32, false);
  double cancelled = 0;
  std::thread client([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    cancelled = Seconds();
    attention.cancel.Cancel();
  });
  attention.Run(op, stream);
  const double free = Seconds();
  client.join();
  return 1e3 * (free - cancelled);
}

int Main(int rounds, int threads, bool check) {
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCpuBackend({.threads = threads});
  Require(backend.status());
  absl::StatusOr<std::unique_ptr<Stream>> stream = (*backend)->NewStream();
  Require(stream.status());
  openblas_set_num_threads(threads);

  Sgemm sgemm;
  std::vector<double> sgemm_seconds;
  std::vector<Row> rows = Rows();
  for (int round = 0; round <= rounds; ++round) {
    const double s = Time([&] { sgemm.Run(); });
    if (round > 0) sgemm_seconds.push_back(s);
    for (Row& row : rows) {
      const double t = Time([&] { row.Run(**stream); });
      if (round > 0) row.seconds.push_back(t);
    }
  }

  std::printf("%s, %d threads, %s, medians of %d rounds\n",
              (*backend)->device().name.c_str(), threads,
              (*backend)->Kernel(Op::kForward, Problem(), {}).name.c_str(),
              rounds);
  std::printf("%-26s %8s %9s %6s\n", "8 heads, S 2048", "GFLOP/s", "of sgemm",
              "bar");
  std::printf("%-26s %8.1f\n", "OpenBLAS sgemm 2048^3",
              Sgemm::kFlops / Median(sgemm_seconds) / 1e9);
  bool passed = true;
  for (const Row& row : rows) {
    const double ratio =
        MedianRatio(sgemm_seconds, row.seconds) * row.flops() / Sgemm::kFlops;
    std::printf("%-26s %8.1f %8.0f%%", row.name.c_str(),
                row.flops() / Median(row.seconds) / 1e9, 100 * ratio);
    if (row.bar > 0) {
      std::printf(" %5.0f%%%s", 100 * row.bar,
                  ratio < row.bar ? "  BELOW" : "");
      passed = passed && ratio >= row.bar;
    }
    std::printf("\n");
  }
  std::printf("smallest problem: %.2f us\n", SmallestUs(**stream));
  for (Op op : {Op::kForward, Op::kBackward}) {
    const double ms = CancelMs(**stream, op);
    std::printf("cancel %s to lane free: %.1f ms, bar %.0f%s\n",
                op == Op::kForward ? "forward" : "backward", ms, kCancelBarMs,
                ms > kCancelBarMs ? "  ABOVE" : "");
    passed = passed && ms <= kCancelBarMs;
  }
  return check && !passed ? 1 : 0;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  int rounds = 9;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--check") {
      check = true;
    } else if (arg.rfind("--rounds=", 0) == 0) {
      rounds = std::atoi(arg.c_str() + 9);
    } else if (arg.rfind("--threads=", 0) == 0) {
      threads = std::atoi(arg.c_str() + 10);
    } else {
      std::fprintf(stderr, "usage: %s [--rounds=N] [--threads=N] [--check]\n",
                   argv[0]);
      return 2;
    }
  }
  if (rounds < 1 || threads < 1) {
    std::fprintf(stderr, "--rounds and --threads must be at least 1\n");
    return 2;
  }
  return attnd::bench::Main(rounds, threads, check);
}
