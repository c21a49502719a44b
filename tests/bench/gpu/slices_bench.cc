// What slices cost, and what they give: groups that take long run as a whole
// and in slices, in turns, while small requests come by on another stream.
//
//   slices_bench [--rounds=N] [--only=TEXT] [--check]
//
// For each shape: how long the group takes, its slices, and how long the small
// requests take that run beside it. --check: fails where slices as they are by
// default make a group take more than 1.05 times as long.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device/gpu.h"
#include "tests/bench/clock.h"
#include "tests/bench/stats.h"

namespace attnd::bench {
namespace {

using cuda::CudaStream;
using cuda::SliceOptions;

constexpr double kMostSlowdown = 1.05;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <class T>
T Require(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

struct Shape {
  const char* name;
  DType dtype = DType::kBF16;
  int64_t batch = 1, len = 1, heads = 1, dim = 128;
  bool causal = true;
  Op op = Op::kForward;
  GroupOptions options = {};
};

const Shape kShapes[] = {
    {.name = "bf16 16k x 48", .batch = 48, .len = 16384, .heads = 64},
    {.name = "bf16 16k x 48 full, 8 heads",
     .batch = 48,
     .len = 16384,
     .heads = 8,
     .causal = false},
    {.name = "bf16 64k x 5", .batch = 5, .len = 65536, .heads = 64},
    {.name = "bf16 256k, 8 heads", .len = 262144, .heads = 8},
    {.name = "bf16 D64 16k x 32",
     .batch = 32,
     .len = 16384,
     .heads = 64,
     .dim = 64},
    {.name = "f32 8k x 8",
     .dtype = DType::kF32,
     .batch = 8,
     .len = 8192,
     .heads = 32},
    {.name = "backward 16k x 8",
     .batch = 8,
     .len = 16384,
     .heads = 64,
     .op = Op::kBackward},
    {.name = "backward 16k x 8 deterministic",
     .batch = 8,
     .len = 16384,
     .heads = 64,
     .op = Op::kBackward,
     .options = {.deterministic = true}},
    {.name = "backward D256 8k x 16",
     .batch = 16,
     .len = 8192,
     .heads = 16,
     .dim = 256,
     .op = Op::kBackward},
    {.name = "backward f32 4k x 8",
     .dtype = DType::kF32,
     .batch = 8,
     .len = 4096,
     .heads = 32,
     .op = Op::kBackward},
    {.name = "naive 8k x 2",
     .batch = 2,
     .len = 8192,
     .heads = 32,
     .options = {Algorithm::kNaive}},
    {.name = "naive f32 8k",
     .dtype = DType::kF32,
     .len = 8192,
     .heads = 32,
     .options = {Algorithm::kNaive}},
};

// A self-attention over device memory of a stream, random where it is read.
class Group {
 public:
  Group(const Shape& shape, CudaStream& stream)
      : shape_(shape), stream_(stream) {
    segment_.k = Random();
    segment_.v = Random();
    segment_.len = shape.len;
    Problem& p = forward_.problem;
    p.batch = shape.batch;
    p.q_len = shape.len;
    p.q_heads = p.kv_heads = shape.heads;
    p.head_dim = p.value_dim = shape.dim;
    p.q = Random();
    p.scale = 0.1f;
    p.mask.causal = shape.causal;
    forward_.o = Mutable(View(Allocate(bytes())));
    forward_.lse = {reinterpret_cast<float*>(
                        Allocate(shape.batch * shape.heads * shape.len * 4)),
                    shape.heads * shape.len, shape.len};
    if (shape.op == Op::kBackward) MakeBackward();
    p.kv = {&segment_, 1};
    backward_.problem = p;
    if (shape.op == Op::kBackward) {  // finds O and LSE
      Require(stream_.Forward({&forward_, 1}, {}));
      Require(stream_.Proceed([] { return false; }));
      Require(stream_.Wait());
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Seconds from the first call to the last result. `slice_ms` gets the time
  // between two slices.
  double Run(CudaStream& stream, std::vector<double>* slice_ms) {
    const double start = Seconds();
    double last = start;
    Require(shape_.op == Op::kForward
                ? stream.Forward({&forward_, 1}, shape_.options)
                : stream.Backward({&backward_, 1}, shape_.options));
    Require(stream.Proceed([&] {
      const double now = Seconds();
      slice_ms->push_back(1e3 * (now - last));
      last = now;
      return false;
    }));
    Require(stream.Wait());
    return Seconds() - start;
  }

 private:
  int64_t bytes() const {
    return shape_.batch * shape_.len * shape_.heads * shape_.dim *
           SizeOf(shape_.dtype);
  }
  std::byte* Allocate(int64_t bytes) {
    return Require(stream_.Allocate(bytes));
  }

  ConstTensorView View(std::byte* data) const {
    const int64_t row = shape_.heads * shape_.dim;
    return {data, shape_.dtype, shape_.len * row, row, shape_.dim};
  }
  static TensorView Mutable(const ConstTensorView& v) {
    return {const_cast<void*>(v.data), v.dtype, v.batch_stride, v.token_stride,
            v.head_stride};
  }

  // From 64 MiB over and over, as only their variety matters.
  ConstTensorView Random() {
    static const std::vector<std::byte> values = [] {
      std::mt19937 random(1);
      std::vector<std::byte> made(int64_t{64} << 20);
      auto* words = reinterpret_cast<uint32_t*>(made.data());
      for (size_t i = 0; i < made.size() / 4; ++i) {
        // 0.5 to 1, of any sign, as f32 and as two of bf16.
        words[i] = (random() & 0x807f807f) | 0x3f003f00;
      }
      return made;
    }();
    std::byte* to = Allocate(bytes());
    for (int64_t at = 0; at < bytes();) {
      const int64_t count =
          std::min<int64_t>(bytes() - at, static_cast<int64_t>(values.size()));
      const ConstHostSpan span(values.data(), count);
      Require(stream_.Upload({&span, 1}, to + at));
      at += count;
    }
    return View(to);
  }

  void MakeBackward() {
    backward_.d_o = Random();
    backward_.o = View(static_cast<std::byte*>(forward_.o.data));
    backward_.lse = {forward_.lse.data, forward_.lse.batch_stride,
                     forward_.lse.head_stride};
    backward_.dq = Mutable(View(Allocate(bytes())));
    segment_.dk = Mutable(View(Allocate(bytes())));
    segment_.dv = Mutable(View(Allocate(bytes())));
  }

  const Shape shape_;
  CudaStream& stream_;
  KvSegment segment_;
  ForwardArgs forward_;
  BackwardArgs backward_;
};

// Small requests, one after another on a stream of their own, as long as it
// lives.
class Small {
 public:
  Small(int device, const cuda::Gpu& gpu)
      : stream_(Require(CudaStream::Create(device, gpu))),
        group_({.name = "small", .len = 512, .heads = 8}, *stream_) {
    thread_ = std::thread([this] {
      std::vector<double> none;
      while (!stop_) {
        ms_.push_back(1e3 * group_.Run(*stream_, &none));
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
    });
  }
  // Milliseconds that each took.
  std::vector<double> Stop() {
    stop_ = true;
    thread_.join();
    return std::move(ms_);
  }

 private:
  const std::unique_ptr<CudaStream> stream_;
  Group group_;
  std::atomic<bool> stop_ = false;
  std::vector<double> ms_;
  std::thread thread_;
};

struct Side {
  const char* name;
  SliceOptions slices;
  bool is_default = false;
};
const Side kSides[] = {
    {"whole", {.time = absl::InfiniteDuration()}},
    {"default", {}, true},
    {"one under way", {.under_way = 1}},
    {"5 ms", {.time = absl::Milliseconds(5)}},
    {"20 ms", {.time = absl::Milliseconds(20)}},
};

struct Options {
  int rounds = 5;
  std::string only;
  bool check = false;
};

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {
    const std::vector<int> usable = Require(cuda::UsableDevices());
    if (usable.empty()) Require(absl::NotFoundError("no GPU"));
    device_ = usable.front();
    // Lets the pool keep what a shape takes.
    std::printf(
        "%s\n",
        Require(cuda::OpenDevice(device_, int64_t{1} << 40)).name.c_str());
    gpu_ = Require(cuda::DescribeGpu(device_));
  }

  bool Run() {
    bool passed = true;
    std::printf("%-32s %-20s %9s %7s %7s %17s %23s\n", "shape", "slices", "ms",
                "ratio", "slices", "slice p50/max ms", "small p50/p99/max ms");
    for (const Shape& shape : kShapes) {
      if (std::string(shape.name).find(options_.only) == std::string::npos) {
        continue;
      }
      passed &= RunShape(shape);
    }
    return passed;
  }

 private:
  struct Result {
    std::unique_ptr<CudaStream> stream;
    std::vector<double> seconds, slice_ms, small_ms;
    size_t slices = 0;
  };

  bool RunShape(const Shape& shape) {
    const auto memory = Require(CudaStream::Create(device_, gpu_));
    Group group(shape, *memory);
    std::vector<Result> results;
    for (const Side& side : kSides) {
      results.emplace_back().stream =
          Require(CudaStream::Create(device_, gpu_, side.slices));
    }
    std::vector<double> none;
    group.Run(*results.front().stream, &none);  // warms up
    // In another order each time: how fast a GPU at its limit of power is
    // depends on what it did before.
    std::vector<size_t> order(results.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::mt19937 random(1);
    for (int round = 0; round < options_.rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i : order) {
        Result& r = results[i];
        none.clear();
        r.seconds.push_back(group.Run(*r.stream, &none));
        r.slices = none.size() + 1;
        r.slice_ms.insert(r.slice_ms.end(), none.begin(), none.end());
      }
    }
    for (Result& r : results) {
      Small small(device_, gpu_);
      for (int round = 0; round < 2; ++round) group.Run(*r.stream, &none);
      r.small_ms = small.Stop();
    }
    bool passed = true;
    for (size_t i = 0; i < results.size(); ++i) {
      passed &= Print(shape, kSides[i], results[i], results[0]);
    }
    memory->Reset();
    return passed;
  }

  static bool Print(const Shape& shape, const Side& side, const Result& r,
                    const Result& whole) {
    const double ratio = MedianRatio(r.seconds, whole.seconds);
    const bool passed = !side.is_default || ratio <= kMostSlowdown;
    std::printf(
        "%-32s %-20s %9.2f %7.3f %7zu %8.2f/%8.2f %7.2f/%7.2f/%7.2f%s\n",
        shape.name, side.name, 1e3 * Median(r.seconds), ratio, r.slices,
        Median(r.slice_ms), Quantile(r.slice_ms, 1), Median(r.small_ms),
        Quantile(r.small_ms, 0.99), Quantile(r.small_ms, 1),
        passed ? "" : "  MISSED");
    std::fflush(stdout);
    return passed;
  }

  const Options options_;
  int device_ = 0;
  cuda::Gpu gpu_;
};

// Nothing if an argument is none of ours.
std::optional<Options> Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--check") {
      options.check = true;
    } else if (arg.rfind("--rounds=", 0) == 0) {
      options.rounds = std::atoi(arg.c_str() + std::strlen("--rounds="));
    } else if (arg.rfind("--only=", 0) == 0) {
      options.only = arg.substr(std::strlen("--only="));
    } else {
      return std::nullopt;
    }
  }
  if (options.rounds < 1) return std::nullopt;
  return options;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) {
  const auto options = attnd::bench::Parse(argc, argv);
  if (!options.has_value()) {
    std::fprintf(stderr,
                 "usage: %s [--rounds=N] [--only=TEXT] [--check]; N at least "
                 "1\n",
                 argv[0]);
    return 2;
  }
  const bool passed = attnd::bench::Bench(*options).Run();
  return options->check && !passed ? 1 : 0;
}
