#include "tests/kernels/cuda/fake_runtime.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

// What the runtime's opaque handles point to.
struct CUstream_st {
  std::deque<std::function<void()>> queue;
  int device = 0;
};
// Outlives the event where a stream has not come to it yet.
struct FakeRecords {
  CUstream_st* stream = nullptr;  // of the last record; null: none
  uint64_t last = 0;              // its number, from 1 on
  uint64_t reached = 0;           // that to which the stream has come
  std::chrono::steady_clock::time_point at;
};
struct CUevent_st {
  int device = 0;
  std::shared_ptr<FakeRecords> records = std::make_shared<FakeRecords>();

  bool happened() const { return records->reached == records->last; }
};

namespace {

using attnd::testing::FakeCudaUse;

// Memory that a stream has allocated.
struct DeviceBlock {
  int device = 0;
  bool there = false;  // the stream has come to it
};

thread_local int current_device = 0;

struct Fake {
  std::recursive_mutex mutex;
  FakeCudaUse use;
  int64_t device_limit = int64_t{1} << 30;
  int64_t pinned_limit = int64_t{1} << 30;
  std::map<void*, int64_t> device, pinned;
  std::map<const std::byte*, int64_t> registered;
  std::map<const void*, std::shared_ptr<DeviceBlock>> owners;
  cudaError_t fault = cudaSuccess;  // sticks
  int devices = 3;
  bool peers = true;
  std::set<std::pair<int, int>> access;  // owner of a pool, and who reads it
  int64_t calls_to_failure = -1;         // -1: none fails
  cudaError_t failure = cudaSuccess;     // of that call alone
};

Fake& TheFake() {
  static Fake* const fake = new Fake;
  return *fake;
}

// Locked; an answer is the fault, once there is one.
struct Call {
  Fake& fake = TheFake();
  std::lock_guard<std::recursive_mutex> lock{fake.mutex};

  // Why a call that may fail does.
  cudaError_t Error() const {
    if (fake.fault != cudaSuccess) return fake.fault;
    const bool now = fake.calls_to_failure == 0;
    if (fake.calls_to_failure >= 0) --fake.calls_to_failure;
    return now ? fake.failure : cudaSuccess;
  }
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

// The device block that `memory` is in, or null.
const DeviceBlock* OwnerOf(const void* memory) {
  const Fake& fake = TheFake();
  auto found = fake.owners.upper_bound(memory);
  if (found == fake.owners.begin()) return nullptr;
  --found;
  const auto* begin = static_cast<const std::byte*>(found->first);
  const auto size = fake.device.find(const_cast<void*>(found->first));
  const bool inside =
      size != fake.device.end() &&
      static_cast<const std::byte*>(memory) < begin + size->second;
  return inside ? found->second.get() : nullptr;
}

// Whether the device of `stream` sees that memory.
bool Sees(cudaStream_t stream, const void* memory) {
  const DeviceBlock* block = OwnerOf(memory);
  return block == nullptr || block->device == stream->device ||
         TheFake().access.contains({block->device, stream->device});
}

bool IsOn(const void* memory, int device) {
  const DeviceBlock* block = OwnerOf(memory);
  return block != nullptr && block->device == device;
}

// Copies rows once the stream has come to it.
void EnqueueRows(cudaStream_t stream, std::byte* to, size_t to_pitch,
                 const std::byte* from, size_t from_pitch, size_t width,
                 size_t rows) {
  Fake& fake = TheFake();
  ++fake.use.copies_ever;
  stream->queue.push_back([=, &fake] {
    for (const void* memory :
         {static_cast<const void*>(to), static_cast<const void*>(from)}) {
      const DeviceBlock* block = OwnerOf(memory);
      if (block != nullptr && !block->there) ++fake.use.early_copies;
    }
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
    }
  });
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
void FailFakeCall(int64_t calls, cudaError_t error) {
  Call call;
  call.fake.calls_to_failure = calls;
  call.fake.failure = error;
}
bool FakeCallHasFailed() {
  Call call;
  return call.fake.calls_to_failure < 0;
}
void SetFakeDevices(int count) {
  Call call;
  call.fake.devices = count;
}
void LetFakePeersReach(bool peers) {
  Call call;
  call.fake.peers = peers;
}
void EnqueueFake(cudaStream_t stream, std::function<void()> work) {
  Call call;
  stream->queue.push_back(std::move(work));
}

}  // namespace attnd::testing

extern "C" {

const char* cudaGetErrorString(cudaError_t) { return "fake error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
  if (device < 0 || device >= call.fake.devices) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
  *stream = new CUstream_st;
  (*stream)->device = current_device;
  ++call.fake.use.streams;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  Call call;
  *least = 0;
  *greatest = -5;
  return call.Error();
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
  if (const cudaError_t error = call.Error()) return error;
  *event = new CUevent_st;
  (*event)->device = current_device;
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
  if (const cudaError_t error = call.Error()) return error;
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
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
  if (const cudaError_t error = call.Error()) return error;
  ++call.fake.use.waits_ever;
  stream->queue.push_back(
      [records = event->records, record = event->records->last] {
        RunUntil(*records, record);
      });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
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

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  Call call;
  Fake& fake = call.fake;
  if (const cudaError_t error = call.Error()) return error;
  const cudaError_t error =
      Allocate(fake.device, fake.device_limit, fake.use.device_bytes,
               fake.use.device_blocks_ever, bytes, memory);
  if (error != cudaSuccess) return error;
  auto block = std::make_shared<DeviceBlock>();
  block->device = stream->device;
  fake.owners[*memory] = block;
  stream->queue.push_back([block] { block->there = true; });
  return cudaSuccess;
}

// Only once the stream has come to it.
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  Call call;
  stream->queue.push_back([memory] {
    Fake& fake = TheFake();
    fake.owners.erase(memory);
    Release(fake.device, fake.use.device_bytes, memory);
  });
  return call.fake.fault;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  Call call;
  Fake& fake = call.fake;
  if (const cudaError_t error = call.Error()) return error;
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
  if (const cudaError_t error = call.Error()) return error;
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
  if (const cudaError_t error = call.Error()) return error;
  if (LeavesBlock(to, bytes) || LeavesBlock(from, bytes) || !Sees(stream, to) ||
      !Sees(stream, from)) {
    return cudaErrorInvalidValue;
  }
  EnqueueRows(stream, static_cast<std::byte*>(to), bytes,
              static_cast<const std::byte*>(from), bytes, bytes, 1);
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from,
                                 const size_t* bytes, size_t count,
                                 cudaMemcpyAttributes*, size_t*, size_t,
                                 cudaStream_t stream) {
  for (size_t i = 0; i < count; ++i) {
    const cudaError_t error = cudaMemcpyAsync(to[i], from[i], bytes[i],
                                              cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
#endif

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                              size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind, cudaStream_t stream) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  if (LeavesBlock(to, (rows - 1) * to_pitch + width) ||
      LeavesBlock(from, (rows - 1) * from_pitch + width) || !Sees(stream, to) ||
      !Sees(stream, from)) {
    return cudaErrorInvalidValue;
  }
  EnqueueRows(stream, static_cast<std::byte*>(to), to_pitch,
              static_cast<const std::byte*>(from), from_pitch, width, rows);
  return cudaSuccess;
}

// These two need no access, but to know whose memory it is.
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from,
                                int from_device, size_t bytes,
                                cudaStream_t stream) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
  if (!IsOn(to, to_device) || !IsOn(from, from_device)) {
    return cudaErrorInvalidValue;
  }
  ++call.fake.use.detours_ever;
  EnqueueRows(stream, static_cast<std::byte*>(to), bytes,
              static_cast<const std::byte*>(from), bytes, bytes, 1);
  return cudaSuccess;
}

cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p,
                                  cudaStream_t stream) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
  if (!IsOn(p->dstPtr.ptr, p->dstDevice) ||
      !IsOn(p->srcPtr.ptr, p->srcDevice) || p->extent.depth != 1 ||
      p->extent.width > p->dstPtr.pitch || p->extent.width > p->srcPtr.pitch) {
    return cudaErrorInvalidValue;
  }
  ++call.fake.use.detours_ever;
  EnqueueRows(stream, static_cast<std::byte*>(p->dstPtr.ptr), p->dstPtr.pitch,
              static_cast<const std::byte*>(p->srcPtr.ptr), p->srcPtr.pitch,
              p->extent.width, p->extent.height);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
  stream->queue.push_back([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

// device/gpu.cc asks these.
cudaError_t cudaGetDeviceCount(int* count) {
  *count = TheFake().devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  *index = current_device;
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
// A pool's handle is its device's number, plus one.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = reinterpret_cast<cudaMemPool_t>(static_cast<uintptr_t>(device) + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  Call call;
  *can = call.fake.peers ? 1 : 0;
  return call.Error();
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const cudaMemAccessDesc* access,
                                 size_t count) {
  Call call;
  if (const cudaError_t error = call.Error()) return error;
  const int owner = static_cast<int>(reinterpret_cast<uintptr_t>(pool)) - 1;
  for (size_t i = 0; i < count; ++i) {
    call.fake.access.insert({owner, access[i].location.id});
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}

}  // extern "C"
