// reference_study: the algorithms of kernels/reference, and the CPU's own
// kernels, on one f32 self-attention after another. Prints CSV for study.py;
// before it a line with the processor's name.
//
//   --lens=N,N,...  (default 256,512,1024,2048)
//   --heads=N       (default 1)
//   --dim=N         (default 64)
//   --threads=N     (default 1)
//   --rounds=N      that are timed, after one that is not (default 3)
//
// heap_bytes is what a run adds to the heap at most; scratch_bytes is what the
// backend says that it takes, whatever it has taken already.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/bench/clock.h"
#include "tests/bench/random_attention.h"
#include "tests/bench/stats.h"
#include "tests/bench/study/heap.h"

namespace attnd::bench {
namespace {

struct Options {
  std::vector<int> lens = {256, 512, 1024, 2048};
  int heads = 1, dim = 64, threads = 1, rounds = 3;
};

constexpr std::pair<const char*, Algorithm> kAlgorithms[] = {
    {"naive", Algorithm::kNaive},
    {"online_softmax", Algorithm::kOnlineSoftmax},
    {"flash_attention_1", Algorithm::kFlashAttention1},
    {"flash_attention_2", Algorithm::kFlashAttention2},
    {"auto", Algorithm::kAuto},
};

// A list of positive numbers, or one.
bool Parse(absl::string_view text, std::vector<int>& numbers) {
  numbers.clear();
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 1) return false;
    numbers.push_back(number);
  }
  return true;
}
bool Parse(absl::string_view text, int& number) {
  return absl::SimpleAtoi(text, &number) && number >= 1;
}

bool Parse(absl::string_view argument, Options& options) {
  if (absl::ConsumePrefix(&argument, "--lens=")) {
    return Parse(argument, options.lens);
  }
  for (const auto& [name, number] :
       {std::pair<const char*, int*>{"--heads=", &options.heads},
        {"--dim=", &options.dim},
        {"--threads=", &options.threads},
        {"--rounds=", &options.rounds}}) {
    if (absl::ConsumePrefix(&argument, name)) return Parse(argument, *number);
  }
  return false;
}

// The most that a run adds to the heap.
template <class Run>
int64_t HeapBytesOf(Run run) {
  const int64_t before = HeapBytes();
  ResetHeapPeak();
  run();
  return HeapPeakBytes() - before;
}

void Measure(Backend& backend, Stream& stream, const Options& options, int len,
             Op op) {
  RandomAttention attention(SelfAttention(len, options.heads, options.dim));
  attention.Run(Op::kForward, stream);  // whose results backward reads
  for (const auto& [name, algorithm] : kAlgorithms) {
    const GroupOptions group = {.algorithm = algorithm};
    const auto run = [&] { attention.Run(op, stream, group); };
    const int64_t heap_bytes = HeapBytesOf(run);
    std::vector<double> seconds;
    for (int i = 0; i < options.rounds; ++i) seconds.push_back(Time(run));
    std::printf("%s,%s,%s,%d,%d,%d,%d,%.6f,%.0f,%lld,%lld\n", name,
                backend.Kernel(op, attention.problem(), group).name.c_str(),
                op == Op::kForward ? "forward" : "backward", len, options.heads,
                options.dim, options.threads, Median(std::move(seconds)),
                attention.shape().flops(op), static_cast<long long>(heap_bytes),
                static_cast<long long>(
                    backend.ScratchBytes(op, attention.problem(), group)));
    std::fflush(stdout);
  }
}

void Main(const Options& options) {
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateCpuBackend({.threads = options.threads});
  Require(backend.status());
  absl::StatusOr<std::unique_ptr<Stream>> stream = (*backend)->NewStream();
  Require(stream.status());
  std::printf("# %s\n", (*backend)->device().name.c_str());
  std::printf(
      "algorithm,kernel,direction,len,heads,dim,threads,seconds,flops,"
      "heap_bytes,scratch_bytes\n");
  for (int len : options.lens) {
    for (Op op : {Op::kForward, Op::kBackward}) {
      Measure(**backend, **stream, options, len, op);
    }
  }
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  attnd::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    if (!attnd::bench::Parse(absl::string_view(argv[i]), options)) {
      std::fprintf(stderr, "what is %s? See the top of reference_study.cc\n",
                   argv[i]);
      return 2;
    }
  }
  attnd::bench::Main(options);
  return 0;
}
