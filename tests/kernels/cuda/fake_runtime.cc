#include "tests/kernels/cuda/fake_runtime.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

// What the runtime's opaque handles point to.
struct CUstream_st {
  std::deque<std::function<void()>> queue;
};
// Outlives the event where a stream has not come to it yet.
struct FakeRecords {
  CUstream_st* stream = nullptr;  // of the last record; null: none
  uint64_t last = 0;              // its number, from 1 on
  uint64_t reached = 0;           // that to which the stream has come
  std::chrono::steady_clock::time_point at;
};
struct CUevent_st {
  std::shared_ptr<FakeRecords> records = std::make_shared<FakeRecords>();

  bool happened() const { return records->reached == records->last; }
};

namespace {

using attnd::testing::FakeCudaUse;

struct Fake {
  std::recursive_mutex mutex;
  FakeCudaUse use;
  int64_t device_limit = int64_t{1} << 30;
  int64_t pinned_limit = int64_t{1} << 30;
  std::map<void*, int64_t> device, pinned;
  std::map<const std::byte*, int64_t> registered;
  cudaError_t fault = cudaSuccess;  // sticks
};

Fake& TheFake() {
  static Fake* const fake = new Fake;
  return *fake;
}

// Locked; an answer is the fault, once there is one.
struct Call {
  Fake& fake = TheFake();
  std::lock_guard<std::recursive_mutex> lock{fake.mutex};
};

cudaError_t Allocate(std::map<void*, int64_t>& blocks, int64_t limit,
                     int64_t& used, int64_t& ever, size_t bytes, void** out) {
  if (bytes > limit || used + static_cast<int64_t>(bytes) > limit) {
    return cudaErrorMemoryAllocation;
  }
  *out = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(*out, 0xAB, bytes);
  blocks[*out] = static_cast<int64_t>(bytes);
  used += static_cast<int64_t>(bytes);
  ++ever;
  return cudaSuccess;
}

cudaError_t Release(std::map<void*, int64_t>& blocks, int64_t& used,
                    void* memory) {
  auto found = blocks.find(memory);
  if (found == blocks.end()) return cudaErrorInvalidValue;
  used -= found->second;
  blocks.erase(found);
  std::free(memory);
  return cudaSuccess;
}

// The registered block that begins last at or before `memory`; the end if there
// is none that reaches it.
std::map<const std::byte*, int64_t>::iterator BlockAt(const void* memory) {
  auto& blocks = TheFake().registered;
  const auto* at = static_cast<const std::byte*>(memory);
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) return blocks.end();
  --found;
  return at < found->first + found->second ? found : blocks.end();
}

// Whether a copy of `bytes` from or to there begins in one block that is
// registered and ends outside of it.
bool LeavesBlock(const void* memory, size_t bytes) {
  const auto block = BlockAt(memory);
  if (block == TheFake().registered.end()) return false;
  const auto* end = static_cast<const std::byte*>(memory) + bytes;
  return end > block->first + block->second;
}

void RunOne(cudaStream_t stream) {
  std::function<void()> work = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (TheFake().fault == cudaSuccess) work();
}

// Until the stream has come to a record.
void RunUntil(const FakeRecords& records, uint64_t record) {
  while (records.reached < record && !records.stream->queue.empty()) {
    RunOne(records.stream);
  }
}

}  // namespace

namespace attnd::testing {

FakeCudaUse FakeCuda() {
  Call call;
  return call.fake.use;
}
void SetFakeDeviceMemory(int64_t bytes) {
  Call call;
  call.fake.device_limit = bytes;
}
void SetFakePinnedMemory(int64_t bytes) {
  Call call;
  call.fake.pinned_limit = bytes;
}
void BreakFakeDevice(cudaStream_t stream, cudaError_t error) {
  EnqueueFake(stream, [error] { TheFake().fault = error; });
}
void RepairFakeDevice() {
  Call call;
  call.fake.fault = cudaSuccess;
}
void EnqueueFake(cudaStream_t stream, std::function<void()> work) {
  Call call;
  stream->queue.push_back(std::move(work));
}

}  // namespace attnd::testing

extern "C" {

const char* cudaGetErrorString(cudaError_t) { return "fake error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return TheFake().fault; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Call call;
  if (call.fake.fault != cudaSuccess) return call.fake.fault;
  *stream = new CUstream_st;
  ++call.fake.use.streams;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call;
  while (!stream->queue.empty()) RunOne(stream);
  return call.fake.fault;
}

// Work that is enqueued goes on, as the real one says; nobody may see it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call;
  while (!stream->queue.empty()) RunOne(stream);
  delete stream;
  --call.fake.use.streams;
  return call.fake.fault;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  Call call;
  if (call.fake.fault != cudaSuccess) return call.fake.fault;
  *event = new CUevent_st;
  ++call.fake.use.events;
  ++call.fake.use.events_ever;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call;
  delete event;
  --call.fake.use.events;
  return call.fake.fault;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Call call;
  if (call.fake.fault != cudaSuccess) return call.fake.fault;
  event->records->stream = stream;
  const uint64_t record = ++event->records->last;
  stream->queue.push_back([records = event->records, record] {
    records->reached = record;
    records->at = std::chrono::steady_clock::now();
  });
  return cudaSuccess;
}

// Of a record that another stream has made: that one goes on first.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  Call call;
  if (call.fake.fault != cudaSuccess) return call.fake.fault;
  stream->queue.push_back(
      [records = event->records, record = event->records->last] {
        RunUntil(*records, record);
      });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call;
  if (call.fake.fault != cudaSuccess) return call.fake.fault;
  if (event->happened()) return cudaSuccess;
  RunOne(event->records->stream);
  return call.fake.fault != cudaSuccess ? call.fake.fault : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Call call;
  RunUntil(*event->records, event->records->last);
  return call.fake.fault;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from,
                                 cudaEvent_t to) {
  Call call;
  if (!from->happened() || !to->happened())
    return cudaErrorInvalidResourceHandle;
  *milliseconds = std::chrono::duration<float, std::milli>(to->records->at -
                                                           from->records->at)
                      .count();
  return call.fake.fault;
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  Call call;
  Fake& fake = call.fake;
  if (fake.fault != cudaSuccess) return fake.fault;
  return Allocate(fake.device, fake.device_limit, fake.use.device_bytes,
                  fake.use.device_blocks_ever, bytes, memory);
}

// Only once the stream has come to it.
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  Call call;
  stream->queue.push_back([memory] {
    Fake& fake = TheFake();
    Release(fake.device, fake.use.device_bytes, memory);
  });
  return call.fake.fault;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  Call call;
  Fake& fake = call.fake;
  if (fake.fault != cudaSuccess) return fake.fault;
  return Allocate(fake.pinned, fake.pinned_limit, fake.use.pinned_bytes,
                  fake.use.pinned_blocks_ever, bytes, memory);
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, 0);
}

cudaError_t cudaFreeHost(void* memory) {
  Call call;
  Fake& fake = call.fake;
  if (fake.fault != cudaSuccess) return fake.fault;
  return Release(fake.pinned, fake.use.pinned_bytes, memory);
}

// What overlaps is registered already, as the real one says.
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  Call call;
  Fake& fake = call.fake;
  if (fake.fault != cudaSuccess) return fake.fault;
  auto* begin = static_cast<std::byte*>(memory);
  if (BlockAt(begin) != fake.registered.end() ||
      BlockAt(begin + bytes - 1) != fake.registered.end()) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  const auto more = static_cast<int64_t>(bytes);
  if (fake.use.pinned_bytes + fake.use.registered_bytes + more >
      fake.pinned_limit) {
    return cudaErrorMemoryAllocation;
  }
  fake.registered[begin] = more;
  fake.use.registered_bytes += more;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  Call call;
  Fake& fake = call.fake;
  if (fake.fault != cudaSuccess) return fake.fault;
  auto found = fake.registered.find(static_cast<std::byte*>(memory));
  if (found == fake.registered.end()) return cudaErrorHostMemoryNotRegistered;
  fake.use.registered_bytes -= found->second;
  fake.registered.erase(found);
  return cudaSuccess;
}

// Refuses what the real one may: host memory in two blocks at once.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  Call call;
  if (call.fake.fault != cudaSuccess) return call.fake.fault;
  if (LeavesBlock(to, bytes) || LeavesBlock(from, bytes)) {
    return cudaErrorInvalidValue;
  }
  ++call.fake.use.copies_ever;
  stream->queue.push_back([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  Call call;
  if (call.fake.fault != cudaSuccess) return call.fake.fault;
  stream->queue.push_back([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

// device/gpu.cc asks these.
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  *index = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;  // a Hopper
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof(*properties));
  std::strcpy(properties->name, "FAKE");
  std::memcpy(properties->uuid.bytes, "a fake GPU's id.", 16);
  properties->totalGlobalMem = TheFake().device_limit;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* name, int bytes, int) {
  std::strncpy(name, "FFFF:FF:1F.7", bytes);  // nobody has it
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}

}  // extern "C"
