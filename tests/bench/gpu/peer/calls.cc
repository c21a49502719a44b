#include "tests/bench/gpu/peer/calls.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/peer/kernels.h"

namespace attnd::bench {

void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

void Check(cudaError_t error, const char* file, int line) {
  if (error == cudaSuccess) return;
  Fail(absl::StrCat(file, ":", line, ": ", cudaGetErrorName(error), ": ",
                    cudaGetErrorString(error)));
}

void Use(int device) { Check(cudaSetDevice(device)); }

bool IsDone(cudaEvent_t event) {
  const cudaError_t error = cudaEventQuery(event);
  if (error == cudaErrorNotReady) {
    // The runtime would otherwise report it after the next launch.
    cudaGetLastError();
    return false;
  }
  Check(error);
  return true;
}

void Poll(cudaEvent_t event) {
  while (!IsDone(event)) {
  }
}

double SecondsBetween(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end));
  return 1e-3 * milliseconds;
}

cudaEvent_t MakeEvent(unsigned flags) {
  cudaEvent_t event = nullptr;
  Check(cudaEventCreateWithFlags(&event, flags));
  return event;
}

Gate::Gate() {
  void* memory = nullptr;
  Check(cudaHostAlloc(&memory, 2 * sizeof(uint32_t), cudaHostAllocPortable));
  words_ = static_cast<uint32_t*>(memory);
  words_[0] = words_[1] = 0;
}

void Gate::Hold(cudaStream_t stream) {
  if (was_late()) Fail("a stream was held up for too long: times are wrong");
  Check(bench::Hold(&words_[0], opened_ + 1, &words_[1], stream));
}

void Gate::Open() {
  std::atomic_ref<uint32_t>(words_[0]).store(++opened_,
                                             std::memory_order_release);
}

}  // namespace attnd::bench
