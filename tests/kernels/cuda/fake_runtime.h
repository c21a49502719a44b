#ifndef ATTND_TESTS_KERNELS_CUDA_FAKE_RUNTIME_H_
#define ATTND_TESTS_KERNELS_CUDA_FAKE_RUNTIME_H_

// A CUDA runtime without a GPU, in place of the real one: what is enqueued on a
// stream happens as late as it may, when someone waits for it. So what may not
// be touched before then shows, and so does what never comes back. Devices
// share one memory.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace attnd::testing {

// What the process holds of the device now.
struct FakeCudaUse {
  int64_t device_bytes = 0;
  int64_t pinned_bytes = 0;
  int64_t pinned_blocks_ever = 0;
  int64_t registered_bytes = 0;  // of the caller's own memory
  int64_t device_blocks_ever = 0;
  int64_t copies_ever = 0;
  int64_t detours_ever = 0;  // of these between devices by way of the host
  int64_t early_copies = 0;  // that came before what they copy was allocated
  int streams = 0;
  int events = 0;
  int64_t events_ever = 0;
  int64_t waits_ever = 0;  // of streams for events
};
FakeCudaUse FakeCuda();

// How much device and pinned memory there is; what is registered counts as the
// latter.
void SetFakeDeviceMemory(int64_t bytes);
void SetFakePinnedMemory(int64_t bytes);

// From when the stream comes to what is enqueued next, every call fails with
// `error`, as after a fault of the device. cudaSuccess: all is well again.
void BreakFakeDevice(cudaStream_t stream, cudaError_t error);
void RepairFakeDevice();

// After `calls` calls more that may fail, one does. -1: none. What frees and
// destroys does not fail. FakeCallHasFailed: that call has come, or there is
// none to come.
void FailFakeCall(int64_t calls, cudaError_t error);
bool FakeCallHasFailed();

// How many devices there are: three, unless told otherwise.
void SetFakeDevices(int count);
// Whether devices can reach each other's memory, for those who ask from now on.
void LetFakePeersReach(bool peers);

// Enqueues `work`, as a kernel would be.
void EnqueueFake(cudaStream_t stream, std::function<void()> work);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_FAKE_RUNTIME_H_
