// A library that the CUDA driver loads into any program, and that writes what
// the GPU does, and when, to a file: see overlap.py for the command.
//
//   CUDA_INJECTION64_PATH  where this library is
//   ATTND_TRACE            the file; gpu_activity.csv unless set
//
// One line for each copy and kernel: kind (h2d, d2h, copy, peer, kernel),
// device, which is the one that reads where two are, stream, start and end in
// nanoseconds, bytes, name. A server may end without
// running exit handlers, so lines are written ten times a second.

#include <cupti.h>
#include <cxxabi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kBufferAlignment = 8;
constexpr std::chrono::milliseconds kFlushPeriod{100};

std::FILE* trace = nullptr;

void Check(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  std::fprintf(stderr, "activity trace: %s: %s\n", what,
               text != nullptr ? text : "unknown error");
}

const char* Name(CUpti_ActivityMemcpyKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "h2d";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "d2h";
    default:
      return "copy";
  }
}

// As a field of CSV.
std::string Demangled(const char* name) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string field = "\"";
  for (const char* c = status == 0 ? demangled : name; *c != 0; ++c) {
    field += *c == '"' ? '\'' : *c;
  }
  std::free(demangled);
  return field + "\"";
}

void Write(const CUpti_ActivityMemcpy6& copy) {
  std::fprintf(trace, "%s,%u,%u,%llu,%llu,%llu,\n",
               Name(static_cast<CUpti_ActivityMemcpyKind>(copy.copyKind)),
               copy.deviceId, copy.streamId,
               static_cast<unsigned long long>(copy.start),
               static_cast<unsigned long long>(copy.end),
               static_cast<unsigned long long>(copy.bytes));
}

void Write(const CUpti_ActivityMemcpyPtoP4& copy) {
  std::fprintf(trace, "peer,%u,%u,%llu,%llu,%llu,\n", copy.dstDeviceId,
               copy.streamId, static_cast<unsigned long long>(copy.start),
               static_cast<unsigned long long>(copy.end),
               static_cast<unsigned long long>(copy.bytes));
}

void Write(const CUpti_ActivityKernel10& kernel) {
  std::fprintf(trace, "kernel,%u,%u,%llu,%llu,0,%s\n", kernel.deviceId,
               kernel.streamId, static_cast<unsigned long long>(kernel.start),
               static_cast<unsigned long long>(kernel.end),
               Demangled(kernel.name).c_str());
}

void Write(const CUpti_Activity* activity) {
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return Write(*reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity));
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return Write(
          *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(activity));
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return Write(*reinterpret_cast<const CUpti_ActivityKernel10*>(activity));
    default:
      return;
  }
}

void CUPTIAPI BufferRequested(uint8_t** buffer, size_t* size,
                              size_t* most_records) {
  *buffer =
      static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI BufferCompleted(CUcontext, uint32_t, uint8_t* buffer,
                              size_t /*size*/, size_t valid) {
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &activity) ==
         CUPTI_SUCCESS) {
    Write(activity);
  }
  std::free(buffer);
  std::fflush(trace);
}

// What has happened so far; what is under way comes the next time.
[[noreturn]] void FlushForever() {
  while (true) {
    std::this_thread::sleep_for(kFlushPeriod);
    cuptiActivityFlushAll(0);
  }
}

}  // namespace

// The driver calls this once, when it starts.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("ATTND_TRACE");
  trace = std::fopen(path != nullptr ? path : "gpu_activity.csv", "w");
  if (trace == nullptr) {
    std::perror("activity trace");
    return 0;
  }
  std::fputs("kind,device,stream,start_ns,end_ns,bytes,name\n", trace);
  Check(cuptiActivityRegisterCallbacks(BufferRequested, BufferCompleted),
        "callbacks");
  Check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY), "copies");
  Check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY2), "copies of peers");
  Check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernels");
  std::atexit([] { cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); });
  std::thread(FlushForever).detach();
  return 1;
}
