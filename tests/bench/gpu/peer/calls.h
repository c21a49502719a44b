#ifndef ATTND_TESTS_BENCH_GPU_PEER_CALLS_H_
#define ATTND_TESTS_BENCH_GPU_PEER_CALLS_H_

// Calls of the CUDA runtime that end the program where they fail. For one
// thread.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

namespace attnd::bench {

// The end of the program, with what went wrong: a benchmark has nothing else to
// do.
[[noreturn]] void Fail(const std::string& what);
// Says where it was called: clang 14 has no std::source_location.
void Check(cudaError_t error, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());
// What the thread does from now on concerns this device.
void Use(int device);
// Whether the work before the event is done.
bool IsDone(cudaEvent_t event);
// Asks until it is: a thread that sleeps would add the time to wake it.
void Poll(cudaEvent_t event);
// Between two events with times, of streams of one device.
double SecondsBetween(cudaEvent_t begin, cudaEvent_t end);
cudaEvent_t MakeEvent(unsigned flags);

// Holds up streams until all that shall run on them is enqueued, so that the
// time that enqueuing takes is not in what the GPU's events say.
class Gate {
 public:
  Gate();
  // Of the thread's device.
  void Hold(cudaStream_t stream);
  void Open();
  // Whether a stream was held up for so long that it went on by itself, which
  // spoils what was measured.
  bool was_late() const { return words_[1] != 0; }

 private:
  uint32_t* words_ = nullptr;  // pinned: tickets let in, whether one was late
  uint32_t opened_ = 0;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_GPU_PEER_CALLS_H_
