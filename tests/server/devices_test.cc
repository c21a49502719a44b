#include "server/program/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnd::server {
namespace {

using Kind = DeviceOptions::Kind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(ParseDeviceTest, ReadsEveryForm) {
  DeviceOptions options;
  for (const auto& [text, kind] : {std::pair{"cpu", Kind::kCpu},
                                   {"cuda", Kind::kCuda},
                                   {"auto", Kind::kAuto}}) {
    ASSERT_EQ(ParseDevice(text, options), absl::OkStatus());
    EXPECT_EQ(options.kind, kind);
    EXPECT_THAT(options.cuda.devices, IsEmpty());
    EXPECT_EQ(DeviceFlag(options), text);
  }
  for (const char* text : {"cuda:0", "cuda:7", "cuda:2,0,11"}) {
    ASSERT_EQ(ParseDevice(text, options), absl::OkStatus());
    EXPECT_EQ(options.kind, Kind::kCuda);
    EXPECT_EQ(DeviceFlag(options), text);
  }
  EXPECT_THAT(options.cuda.devices, ElementsAre(2, 0, 11));
  ASSERT_EQ(ParseDevice("cpu*4", options), absl::OkStatus());
  EXPECT_EQ(options.kind, Kind::kCpu);
  EXPECT_EQ(options.cpus, 4);
  EXPECT_EQ(DeviceFlag(options), "cpu*4");
  ASSERT_EQ(ParseDevice("cuda", options), absl::OkStatus());
  EXPECT_THAT(options.cuda.devices, IsEmpty());
}

TEST(ParseDeviceTest, RefusesWhatIsNone) {
  for (const char* text :
       {"",           "gpu",      "CUDA",     "cuda ",
        "cpu:0",      "cuda:",    "cuda:x",   "cuda:-1",
        "cuda:+1",    "cuda: 1",  "cuda:1,",  "cuda:,1",
        "cuda:1,,2",  "cuda:0x1", "cuda:1.5", "cuda:99999999999",
        "cpu*",       "cpu*0",    "cpu*17",   "cpu*x",
        "cuda:0,1,0", "auto,cpu"}) {
    DeviceOptions options;
    EXPECT_EQ(ParseDevice(text, options).code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(CreateDevicesTest, TheProcessorIsAlwaysThere) {
  DeviceOptions options;
  options.kind = Kind::kCpu;
  options.cpu.threads = 1;
  const auto devices = CreateDevices(options);
  ASSERT_EQ(devices.status(), absl::OkStatus());
  ASSERT_EQ(devices->size(), 1);
  EXPECT_EQ(devices->front()->device().kind, "cpu");
}

TEST(CreateDevicesTest, SeveralVirtualOnesHaveATeam) {
  DeviceOptions options;
  options.cpu.threads = 2;
  ASSERT_EQ(ParseDevice("cpu*3", options), absl::OkStatus());
  const auto devices = CreateDevices(options);
  ASSERT_EQ(devices.status(), absl::OkStatus());
  ASSERT_EQ(devices->size(), 4);
  EXPECT_EQ((*devices)[2]->device().index, 2);
  EXPECT_EQ((*devices)[2]->device().members, 0);
  EXPECT_EQ(devices->back()->device().kind, "team");
  EXPECT_EQ(devices->back()->device().members, 3);
}

TEST(CreateDevicesTest, AutoTakesGpusIfThereAreAny) {
  const bool gpus = CudaDeviceCount() > 0;
  EXPECT_EQ(Resolve({}).kind, gpus ? Kind::kCuda : Kind::kCpu);
  const auto devices = CreateDevices({});
  ASSERT_EQ(devices.status(), absl::OkStatus());
  ASSERT_GT(devices->size(), 0);
  EXPECT_EQ(devices->front()->device().kind, gpus ? "cuda" : "cpu");
}

TEST(CreateDevicesTest, AMissingGpuIsNotFoundAndNamesTheFlag) {
  DeviceOptions options;
  ASSERT_EQ(ParseDevice("cuda:4096", options), absl::OkStatus());
  absl::Status status = CreateDevices(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), StartsWith("--device=cuda:4096:"));
  if (CudaDeviceCount() > 0) return;
  ASSERT_EQ(ParseDevice("cuda", options), absl::OkStatus());
  status = CreateDevices(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), StartsWith("--device=cuda:"));
}

TEST(SchedulerDefaultsTest, AreValidEverywhere) {
  for (Kind kind : {Kind::kCpu, Kind::kCuda}) {
    EXPECT_EQ(SchedulerDefaults(kind).Validate(), absl::OkStatus());
  }
  EXPECT_EQ(SchedulerDefaults(Kind::kCpu).lanes_per_device, 2);
  EXPECT_EQ(SchedulerDefaults(Kind::kCuda).lanes_per_device, 3);
}

TEST(LimitKeptMemoryTest, StreamsKeepASmallPartOfTheLimit) {
  DeviceOptions low, high;
  LimitKeptMemory(int64_t{256} << 20, low);
  EXPECT_EQ(low.cpu.retained_bytes, 1 << 20);
  EXPECT_EQ(low.cpu.retained_workspace_bytes, 1 << 19);
  LimitKeptMemory(int64_t{1} << 40, high);
  EXPECT_EQ(high.cpu.retained_bytes, CpuOptions().retained_bytes);
  EXPECT_EQ(high.cpu.retained_workspace_bytes,
            CpuOptions().retained_workspace_bytes);
}

TEST(CudaOptionsTest, RefusesImpossibleValues) {
  CudaOptions negative, twice, retained, pinned;
  negative.devices = {-1};
  twice.devices = {0, 1, 0};
  retained.retained_bytes = -1;
  pinned.retained_pinned_bytes = -1;
  for (const CudaOptions& options : {negative, twice, retained, pinned}) {
    EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(CreateCudaBackends(options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(CudaOptions().Validate(), absl::OkStatus());
}

}  // namespace
}  // namespace attnd::server
