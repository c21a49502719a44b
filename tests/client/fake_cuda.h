#ifndef ATTND_TESTS_CLIENT_FAKE_CUDA_H_
#define ATTND_TESTS_CLIENT_FAKE_CUDA_H_

#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "client/cuda_abi.h"
#include "tests/client/region_server.h"

namespace attnd::client {

// A driver with one GPU, whose memory is the host's and whose descriptors are
// those of memfds. Counts what is held, and fails where it is told to. There is
// one: the driver's functions take no object.
class FakeCuda {
 public:
  static FakeCuda& Get() {
    static auto& fake = *new FakeCuda();
    return fake;
  }
  static cuda::Functions Functions() {
    Get() = FakeCuda();
    cuda::Functions f;
    f.init = [](unsigned) { return Step("init"); };
    f.device_get = [](cuda::Device* device, int index) {
      *device = 40 + index;
      return index == 0 ? Step("device_get") : cuda::kInvalidDevice;
    };
    f.uuid = [](cuda::Uuid* uuid, cuda::Device) {
      std::memcpy(uuid->bytes, "GPU with a number", 16);
      return Step("uuid");
    };
    f.primary_context_retain = [](cuda::Context* context, cuda::Device device) {
      EXPECT_EQ(device, 40);
      *context = reinterpret_cast<cuda::Context>(&Get());
      return Hold("context", "retain");
    };
    f.primary_context_release = [](cuda::Device) { return Drop("context"); };
    f.context_push = [](cuda::Context context) {
      EXPECT_EQ(context, reinterpret_cast<cuda::Context>(&Get()));
      return Hold("current", "push");
    };
    f.context_pop = [](cuda::Context*) { return Drop("current"); };
    f.context_synchronize = [] {
      ++Get().synchronized;
      return Step("synchronize");
    };
    f.granularity = [](size_t* bytes, const cuda::MemAllocationProp* p, int) {
      EXPECT_EQ(p->location.id, 40);
      *bytes = 4096;
      return Step("granularity");
    };
    f.create = [](cuda::AllocationHandle* handle, size_t bytes,
                  const cuda::MemAllocationProp* p, unsigned long long) {
      EXPECT_EQ(p->requested_handle_types, cuda::kHandlePosixFileDescriptor);
      const cuda::Result result = Hold("handle", "create");
      if (result == cuda::kSuccess) {
        *handle = MemoryOf(static_cast<int64_t>(bytes)).release();
      }
      return result;
    };
    f.export_handle = [](void* fd, cuda::AllocationHandle handle, int,
                         unsigned long long) {
      const cuda::Result result = Step("export");
      if (result == cuda::kSuccess) {
        const int copy = fcntl(static_cast<int>(handle), F_DUPFD_CLOEXEC, 0);
        std::memcpy(fd, &copy, sizeof(copy));
      }
      return result;
    };
    f.reserve = [](cuda::DevicePtr* address, size_t bytes, size_t,
                   cuda::DevicePtr, unsigned long long) {
      const cuda::Result result = Hold("address", "reserve");
      if (result == cuda::kSuccess) {
        *address = reinterpret_cast<cuda::DevicePtr>(mmap(
            nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      }
      return result;
    };
    f.map = [](cuda::DevicePtr address, size_t bytes, size_t,
               cuda::AllocationHandle handle, unsigned long long) {
      const cuda::Result result = Hold("mapping", "map");
      if (result == cuda::kSuccess) {
        EXPECT_NE(mmap(reinterpret_cast<void*>(address), bytes,
                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       static_cast<int>(handle), 0),
                  MAP_FAILED);
      }
      return result;
    };
    f.set_access = [](cuda::DevicePtr, size_t, const cuda::MemAccessDesc* a,
                      size_t count) {
      EXPECT_EQ(count, 1);
      EXPECT_EQ(a->location.id, 40);
      return Step("set_access");
    };
    f.unmap = [](cuda::DevicePtr, size_t) { return Drop("mapping"); };
    f.address_free = [](cuda::DevicePtr address, size_t bytes) {
      EXPECT_EQ(Get().held["mapping"], 0) << "still mapped";
      munmap(reinterpret_cast<void*>(address), bytes);
      return Drop("address");
    };
    f.release = [](cuda::AllocationHandle handle) {
      close(static_cast<int>(handle));
      return Drop("handle");
    };
    f.copy_to_device = [](cuda::DevicePtr to, const void* from, size_t bytes) {
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      return Step("copy_to_device");
    };
    f.copy_to_host = [](void* to, cuda::DevicePtr from, size_t bytes) {
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
      return Step("copy_to_host");
    };
    f.error_string = [](cuda::Result, const char** text) {
      *text = "as told";
      return cuda::kSuccess;
    };
    return f;
  }

  // Nothing is held any more.
  static void ExpectAllGone() {
    for (const auto& [what, count] : Get().held) EXPECT_EQ(count, 0) << what;
  }

  std::string failing;  // a step
  cuda::Result error = 999;
  std::map<std::string, int> held;
  int synchronized = 0;

 private:
  static cuda::Result Step(const std::string& name) {
    return name == Get().failing ? Get().error : cuda::kSuccess;
  }
  static cuda::Result Hold(const std::string& what, const std::string& name) {
    const cuda::Result result = Step(name);
    if (result == cuda::kSuccess) ++Get().held[what];
    return result;
  }
  static cuda::Result Drop(const std::string& what) {
    EXPECT_GT(Get().held[what], 0) << what;
    --Get().held[what];
    return cuda::kSuccess;
  }
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_FAKE_CUDA_H_
