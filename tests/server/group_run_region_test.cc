// Inputs and results in regions, on devices of either kind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/execution/group_run.h"
#include "server/scheduling/admission.h"
#include "server/work/request_bytes.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/test_regions.h"
#include "tests/server/fakes/test_work.h"

namespace attnd::server {
namespace {

using Stage = IdentityBackend::Stage;

constexpr int64_t kRegionBytes = int64_t{1} << 20;

// Counts what its streams do, and may keep its memory apart from the host's.
class CountingBackend : public IdentityBackend {
 public:
  explicit CountingBackend(bool apart) : apart_(IdentityBackend::device()) {
    apart_.shares_host_memory = !apart;
  }
  const DeviceInfo& device() const override { return apart_; }
  absl::Status On(Stage stage, Group) override {
    ++counts[stage];
    if (stage == Stage::kRun && on_run) on_run();
    return status;
  }

  std::map<Stage, int> counts;
  std::function<void()> on_run;
  absl::Status status;

 private:
  DeviceInfo apart_;
};

absl::Status Execute(IdentityBackend& backend, std::vector<WorkPtr> works,
                     std::vector<absl::StatusOr<WorkResult>>& results) {
  const auto pool = OutputPool::Create(backend.host_memory(), 0);
  GroupRun run(backend, *backend.NewStream(), *pool, std::move(works));
  const auto outcome = run.Execute(
      [] { return false; },
      [&](GroupRun::Completed c) { results.push_back(std::move(c.result)); });
  if (!outcome.ok()) {
    run.DropStream();
    run.TakeAll();
  }
  return outcome.status();
}

TEST(GroupRunRegionTest, AHostsDeviceReadsAndWritesThemInPlace) {
  CountingBackend backend(/*apart=*/false);
  TestWork test({.q_len = 100, .kv_len = 10});
  auto region = TestRegion::OfHost("r", kRegionBytes);
  std::byte* const memory = region->host().data();
  Work& work = *test.work();
  const int64_t at = MoveIntoRegion(region, memory, work, TensorId::kO);
  std::vector<absl::StatusOr<WorkResult>> results;
  ASSERT_EQ(Execute(backend, {test.work()}, results), absl::OkStatus());
  EXPECT_EQ(backend.counts[Stage::kAllocate], 0);
  EXPECT_EQ(backend.counts[Stage::kUpload], 0);
  ASSERT_EQ(results.at(0).status(), absl::OkStatus());
  EXPECT_FALSE(results[0]->outputs[TensorId::kO]);
  EXPECT_TRUE(results[0]->outputs[TensorId::kLse]);
  ASSERT_NE(results[0]->PlaceOf(TensorId::kO), nullptr);
  EXPECT_EQ(results[0]->PlaceOf(TensorId::kO)->region, "r");
  EXPECT_EQ(results[0]->PlaceOf(TensorId::kO)->offset, at);
  EXPECT_EQ(std::memcmp(memory + at, test.q().data(), test.q().size()), 0);
}

TEST(GroupRunRegionTest, ADeviceApartCopiesFromThemAndIntoThem) {
  CountingBackend backend(/*apart=*/true);
  TestWork test({.op = Op::kBackward, .q_len = 100, .kv_len = 10});
  auto region = TestRegion::OfHost("r", kRegionBytes);
  std::byte* const memory = region->host().data();
  const int64_t at =
      MoveIntoRegion(region, memory, *test.work(), TensorId::kDQ);
  std::vector<absl::StatusOr<WorkResult>> results;
  ASSERT_EQ(Execute(backend, {test.work()}, results), absl::OkStatus());
  EXPECT_EQ(backend.counts[Stage::kAllocate], 1);
  EXPECT_EQ(backend.counts[Stage::kUpload], 6);    // q k v d_o lse, and o
  EXPECT_EQ(backend.counts[Stage::kDownload], 3);  // dq dk dv
  ASSERT_EQ(results.at(0).status(), absl::OkStatus());
  EXPECT_EQ(std::memcmp(memory + at, test.q().data(), test.q().size()), 0);
}

TEST(GroupRunRegionTest, ADevicesOwnMemoryIsNeitherCopiedNorMapped) {
  CountingBackend backend(/*apart=*/true);
  std::shared_ptr<DeviceBuffer> buffer = *backend.NewBuffer(kRegionBytes);
  std::byte* const memory = buffer->data();
  auto region = TestRegion::OfDevice("r", buffer, kRegionBytes, 0);
  std::weak_ptr<DeviceBuffer> weak = buffer;
  buffer.reset();
  TestWork test({.q_len = 100, .kv_len = 10});
  const int64_t at = MoveIntoRegion(region, memory, *test.work(), TensorId::kO);
  // The client lets go of it as the kernels run, which need it.
  region.reset();
  bool lived = false;
  backend.on_run = [&] {
    lived = !weak.expired() &&
            std::memcmp(memory, test.q().data(), test.q().size()) == 0;
  };
  std::vector<absl::StatusOr<WorkResult>> results;
  ASSERT_EQ(Execute(backend, {test.work()}, results), absl::OkStatus());
  EXPECT_TRUE(lived);
  EXPECT_EQ(backend.counts[Stage::kAllocate], 0);
  EXPECT_EQ(backend.counts[Stage::kUpload], 0);
  EXPECT_EQ(backend.counts[Stage::kUse], 4);        // q k v o
  EXPECT_EQ(backend.counts[Stage::kMapOutput], 1);  // lse
  ASSERT_EQ(results.at(0).status(), absl::OkStatus());
  EXPECT_EQ(std::memcmp(memory + at, test.q().data(), test.q().size()), 0);
}

TEST(GroupRunRegionTest, NothingKeepsARegionAfterItsRequest) {
  for (const bool apart : {false, true}) {
    for (const bool broken : {false, true}) {
      CountingBackend backend(apart);
      if (broken) {
        backend.on_run = [&] {
          backend.status = absl::InternalError("broken");
        };
      }
      auto region = TestRegion::OfHost("r", kRegionBytes);
      std::weak_ptr<Region> weak = region;
      TestWork test({.q_len = 100, .kv_len = 10});
      MoveIntoRegion(region, region->host().data(), *test.work(), TensorId::kO);
      region.reset();
      bool lived = false;
      const auto on_run = backend.on_run;
      backend.on_run = [&] {
        lived = !weak.expired();
        if (on_run) on_run();
      };
      std::vector<absl::StatusOr<WorkResult>> results;
      EXPECT_EQ(Execute(backend, {test.work()}, results).ok(), !broken);
      EXPECT_TRUE(lived);
      results.clear();
      test.work()->inputs = {};
      test.work()->placed = {};
      EXPECT_TRUE(weak.expired());
    }
  }
}

TEST(GroupRunRegionTest, WhatIsInPlaceIsNotCharged) {
  TestWork test({.q_len = 1000, .kv_len = 500});
  Work& work = *test.work();
  const Request& request = *work.request;
  IdentityBackend backend;
  const auto bytes = [&](bool shares) {
    const Placement placement = PlacementOf(work, shares);
    return std::pair(DeviceInputBytes(request, placement),
                     PooledOutputBytes(request, placement));
  };
  const std::pair all(DeviceInputBytes(request), PooledOutputBytes(request));
  EXPECT_EQ(bytes(true), all);
  auto region = TestRegion::OfHost("r", kRegionBytes);
  MoveIntoRegion(region, region->host().data(), work, TensorId::kO);
  const std::pair none(
      kTensorAlignment,
      OutputPool::Capacity(request.output(TensorId::kLse).bytes));
  EXPECT_EQ(bytes(true), none);
  EXPECT_EQ(bytes(false), all);
  const auto on_device = TestRegion::OfDevice(
      "d", *backend.NewBuffer(kRegionBytes), kRegionBytes, 2);
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    std::get<RegionBytes>(work.inputs[id]).region = on_device;
  }
  work.placed[TensorId::kO].region = on_device;
  work.devices = on_device->devices();
  EXPECT_EQ(bytes(false), none);
  // And only its device counts.
  IdentityBackend others[4];
  std::vector<Backend*> devices;
  for (IdentityBackend& other : others) devices.push_back(&other);
  const auto footprint = Measure(
      request, devices, PlacementOf(work, /*shares_host_memory=*/false));
  ASSERT_EQ(footprint.status(), absl::OkStatus());
  EXPECT_EQ(footprint->devices, uint64_t{1} << 2);
  EXPECT_EQ(footprint->input_bytes, none.first);
}

}  // namespace
}  // namespace attnd::server
