#include "client/cuda_driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tests/client/fake_cuda.h"

namespace attnd::client {
namespace {

using ::testing::HasSubstr;

TEST(CudaDriverTest, WithoutADriverThereIsNoGpu) {
  if (void* library = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(library);
    GTEST_SKIP() << "there is a CUDA driver";
  }
  const absl::Status status = CudaGpu::Open(0).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no CUDA driver"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("libcuda.so.1"));
}

TEST(CudaDriverTest, AllocatesMapsAndExports) {
  const size_t before = OpenDescriptors();
  {
    auto gpu = CudaGpu::Open(FakeCuda::Functions(), 0);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    EXPECT_EQ(std::memcmp((*gpu)->uuid().data(), "GPU with a number", 16), 0);
    auto memory = CudaMemory::Allocate(*gpu, 5000);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->bytes(), 8192);
    std::string sent(8192, 's'), seen(8192, ' ');
    EXPECT_TRUE(
        (*gpu)->CopyToDevice(sent.data(), 8192, (*memory)->data()).ok());
    EXPECT_EQ(FakeCuda::Get().synchronized, 1);
    EXPECT_TRUE((*gpu)->CopyToHost((*memory)->data(), 8192, seen.data()).ok());
    EXPECT_EQ(seen, sent);
    auto fd = (*memory)->Export();
    ASSERT_TRUE(fd.ok()) << fd.status();
    EXPECT_EQ(pread(fd->get(), seen.data(), 1, 8191), 1);
    EXPECT_EQ(seen[0], 's');
    EXPECT_EQ(FakeCuda::Get().held["current"], 0);
    gpu->reset();  // the memory keeps it
  }
  FakeCuda::ExpectAllGone();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(CudaDriverTest, WhateverFailsNothingIsLeft) {
  const size_t before = OpenDescriptors();
  for (const std::string step :
       {"init", "device_get", "uuid", "retain", "push", "granularity", "create",
        "reserve", "map", "set_access", "export"}) {
    const cuda::Functions functions = FakeCuda::Functions();
    FakeCuda::Get().failing = step;
    FakeCuda::Get().error = cuda::kOutOfMemory;
    absl::Status status;
    {
      auto gpu = CudaGpu::Open(functions, 0);
      status = gpu.status();
      if (gpu.ok()) {
        auto memory = CudaMemory::Allocate(*gpu, 5000);
        status = memory.status();
        if (memory.ok()) status = (*memory)->Export().status();
      }
    }
    EXPECT_FALSE(status.ok()) << step;
    EXPECT_THAT(std::string(status.message()), HasSubstr("as told")) << step;
    if (step == "init" || step == "device_get") {
      EXPECT_TRUE(absl::IsNotFound(status)) << step << status;
    } else {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << step << status;
    }
    FakeCuda::ExpectAllGone();
    EXPECT_EQ(OpenDescriptors(), before) << step;
  }
}

TEST(CudaDriverTest, ErrorsSayWhatTheyAre) {
  const auto create = [](cuda::Result error) {
    const cuda::Functions functions = FakeCuda::Functions();
    FakeCuda::Get().failing = "create";
    FakeCuda::Get().error = error;
    return CudaMemory::Allocate(*CudaGpu::Open(functions, 0), 1).status();
  };
  EXPECT_TRUE(absl::IsUnimplemented(create(cuda::kNotSupported)));
  EXPECT_TRUE(absl::IsInternal(create(999)));
  EXPECT_THAT(std::string(create(999).message()), HasSubstr("cuMemCreate"));
  const absl::Status other = CudaGpu::Open(FakeCuda::Functions(), 1).status();
  EXPECT_TRUE(absl::IsNotFound(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("no GPU 1"));
}

}  // namespace
}  // namespace attnd::client
