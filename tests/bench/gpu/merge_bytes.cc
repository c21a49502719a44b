// What the steps of a ring do to memory beside attention: launches whose
// kernels Nsight Compute counts, for merge_bytes.py to compare with what they
// should move.
//
//   merge_bytes [--len=8192] [--device=0]
//
// bf16, 16 heads of 128, --len rows over as many columns, no mask. Each launch
// is a Forward of one problem, and is over before the next begins:
//
//   plain   O in bf16, no LSE
//   first   O in f32 and LSE: a ring's first step
//   middle  the same, merged with the state of `first`, into other memory
//   last    O in bf16 and LSE, merged with the state of `middle`
//
// For each it prints a line of JSON: which bytes threads should read and write
// beyond those of `plain`. It counts what epilogue.cuh has threads move, by
// global loads and stores:
//
//   - O in f32 and LSE, which StoreFloats and CloseAlone store. A warp's stores
//     fill whole sectors of 32 bytes, four lanes those of a row of O, eight
//     rows one of LSE; so bytes are neither more nor fewer in the L1 cache's
//     units.
//   - What is merged with, O in f32 and LSE, which AddRow and MergeBefore load,
//     by whole sectors, too.
//
// Every warp also asks eight times for 32 bytes of descriptors where it merges
// eight rows, of which it reads 4,128 bytes: what is asked for is 1.06 times as
// much as the state. The L1 cache has the descriptors, and nothing of a state.
// So reads count where they miss it, and writes, which all go on to the L2
// cache, where they are asked for.
//
// The copy engine moves Q, K and V, and the last step's O in bf16 as that of
// `plain`; it passes by the units for loads and stores, whose counters do not
// see it.
//
// All launches see the same columns. So merging multiplies sums of exponentials
// by 2 and by 3: O is about the same in all of them, and LSE of `last` is that
// of `first` plus ln 3. The program fails where that is not so, as bytes of
// what was not merged would prove nothing.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/team/member_stream.h"
#include "tests/bench/gpu/plan/host_tensors.h"
#include "tests/bench/require.h"

namespace attnd::bench {
namespace {

constexpr int64_t kHeads = 16, kDim = 128;
// Lengths are multiples of it, so that no tile has rows to spare.
constexpr int64_t kLenUnit = 128;
constexpr double kMostDifference = 1.0 / 64;  // of vectors of O
constexpr double kMostLseDifference = 1e-4;

// O and LSE in the device's memory.
struct Results {
  DType dtype = DType::kF32;  // of O
  std::byte* o = nullptr;     // [len, heads, dim]
  std::byte* lse = nullptr;   // [heads, len], f32, or null
};

class MergeBytes {
 public:
  MergeBytes(Backend& backend, int64_t len)
      : len_(len),
        host_(backend.host_memory(), elements(), rows()),
        member_(Get(backend.NewMemberStream())) {
    problem_.batch = 1;
    problem_.q_len = segment_.len = len;
    problem_.q_heads = problem_.kv_heads = kHeads;
    problem_.head_dim = problem_.value_dim = kDim;
    problem_.scale = 1 / std::sqrt(static_cast<float>(kDim));
    problem_.q = Load(host_.q());
    segment_.k = Load(host_.k());
    segment_.v = Load(host_.v());
    problem_.kv = {&segment_, 1};
    Wait();
  }

  // Whether the results are right.
  bool Run() {
    const Results plain = Allocate(DType::kBF16, /*with_lse=*/false);
    const Results states[] = {Allocate(DType::kF32), Allocate(DType::kF32)};
    const Results last = Allocate(DType::kBF16);
    Launch(plain, nullptr);
    Print("plain", 0, 0);
    Launch(states[0], nullptr);
    Print("first", 0, state_bytes());
    Launch(states[1], &states[0]);
    Print("middle", state_bytes(), state_bytes());
    Launch(last, &states[1]);
    Print("last", state_bytes(), lse_bytes());
    return Check(plain, states[0], last);
  }

 private:
  int64_t rows() const { return len_ * kHeads; }
  int64_t elements() const { return rows() * kDim; }
  int64_t lse_bytes() const { return rows() * SizeOf(DType::kF32); }
  int64_t state_bytes() const {
    return elements() * SizeOf(DType::kF32) + lse_bytes();
  }

  void Wait() { Require(member_->Wait().status()); }

  ConstTensorView View(const std::byte* data, DType dtype) const {
    return {data, dtype, elements(), kHeads * kDim, kDim};
  }

  ConstTensorView Load(const std::byte* from) {
    const int64_t bytes = elements() * SizeOf(DType::kBF16);
    std::byte* const to = Get(member_->Allocate(bytes));
    Require(member_->Upload({.from = from, .to = to, .row_bytes = bytes}));
    return View(to, DType::kBF16);
  }
  void Store(const std::byte* from, std::byte* to, int64_t bytes) {
    FillWithNan(to, bytes);
    Require(member_->Download({.from = from, .to = to, .row_bytes = bytes}));
  }

  Results Allocate(DType dtype, bool with_lse = true) {
    Results results{.dtype = dtype};
    results.o = Get(member_->Allocate(elements() * SizeOf(dtype)));
    if (with_lse) results.lse = Get(member_->Allocate(lse_bytes()));
    return results;
  }

  // Returns when it is over.
  void Launch(const Results& to, const Results* before) {
    ForwardArgs args;
    args.problem = problem_;
    args.o = {to.o, to.dtype, elements(), kHeads * kDim, kDim};
    args.lse = {reinterpret_cast<float*>(to.lse), rows(), len_};
    if (before != nullptr) {
      args.before.o = View(before->o, before->dtype);
      args.before.lse = {reinterpret_cast<const float*>(before->lse), rows(),
                         len_};
    }
    Require(member_->Forward({&args, 1}, {}));
    Wait();
  }

  static void Print(const char* launch, int64_t read, int64_t written) {
    std::printf(
        "{\"merge_bytes\": {\"launch\": \"%s\", \"read\": %lld, \"written\": "
        "%lld}}\n",
        launch, static_cast<long long>(read), static_cast<long long>(written));
    std::fflush(stdout);
  }

  bool Check(const Results& plain, const Results& first, const Results& last) {
    const Outputs &reference = host_.reference(), &got = host_.got();
    const int64_t o_bytes = elements() * SizeOf(DType::kBF16);
    Store(plain.o, reference.o, o_bytes);
    Store(first.lse, reference.lse, lse_bytes());
    Store(last.o, got.o, o_bytes);
    Store(last.lse, got.lse, lse_bytes());
    Wait();
    auto* const expected = reinterpret_cast<float*>(reference.lse);
    std::transform(expected, expected + rows(), expected,
                   [](float lse) { return lse + std::log(3.0f); });
    const double o = LargestDifference(got.o, reference.o, elements(), kDim);
    const double lse = LargestFloatDifference(got.lse, reference.lse, rows());
    const bool right = o <= kMostDifference && lse <= kMostLseDifference;
    std::printf(
        "{\"merge_bytes_results\": {\"o\": \"%.1e\", \"lse\": \"%.1e\", "
        "\"right\": %s}}\n",
        o, lse, right ? "true" : "false");
    return right;
  }

  const int64_t len_;
  HostTensors host_;  // outlives what copies from it and to it
  const std::unique_ptr<MemberStream> member_;
  KvSegment segment_;
  Problem problem_;  // points to the segment
};

struct Options {
  int len = 8192, device = 0;
};

// Sets `value` if `argument` is --name=VALUE.
bool Take(absl::string_view argument, absl::string_view name, int& value) {
  return absl::ConsumePrefix(&argument, name) &&
         absl::SimpleAtoi(argument, &value);
}

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    if (!Take(argv[i], "--len=", options.len) &&
        !Take(argv[i], "--device=", options.device)) {
      return false;
    }
  }
  return options.len > 0 && options.len % kLenUnit == 0 && options.device >= 0;
}

int Run(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: %s [--len=N] [--device=N]; lengths: multiples of "
                 "%lld\n",
                 argv[0], static_cast<long long>(kLenUnit));
    return 2;
  }
  const auto devices = Get(CreateCudaBackends({.devices = {options.device}}));
  return MergeBytes(*devices.front(), options.len).Run() ? 0 : 1;
}

}  // namespace
}  // namespace attnd::bench

int main(int argc, char** argv) { return attnd::bench::Run(argc, argv); }
