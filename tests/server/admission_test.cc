#include "server/scheduling/admission.h"

#include <limits>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "proto/wire/status.h"
#include "server/scheduling/scheduler.h"
#include "tests/server/fakes/identity_backend.h"
#include "tests/server/fakes/team_backend.h"
#include "tests/server/fakes/test_work.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

class Device : public IdentityBackend {
 public:
  Device(bool supports, int64_t scratch_bytes, double cost_flops = 0)
      : supports_(supports),
        scratch_bytes_(scratch_bytes),
        cost_flops_(cost_flops) {}
  absl::Status Supports(Op, const Problem& problem,
                        const GroupOptions&) const override {
    EXPECT_EQ(problem.q.data, nullptr);
    if (supports_) return absl::OkStatus();
    return absl::UnimplementedError("not here");
  }
  int64_t ScratchBytes(Op, const Problem&, const GroupOptions&) const override {
    return scratch_bytes_;
  }
  double CostFlops(Op, const Problem&,
                   const GroupOptions& options) const override {
    EXPECT_NE(options.algorithm, Algorithm::kAuto);
    return cost_flops_;
  }

 private:
  const bool supports_;
  const int64_t scratch_bytes_;
  const double cost_flops_;
};

TEST(AdmissionTest, MeasuresWhatEveryPartWouldTake) {
  Device no(false, 900), little(true, 100), much(true, 300);
  TestWork test({.dtype = DType::kBF16, .q_len = 10, .kv_len = 20, .dim = 40});
  const Request& request = *test.work()->request;
  auto footprint = Measure(request, {&no, &little, &much});
  ASSERT_EQ(footprint.status(), absl::OkStatus());
  EXPECT_EQ(footprint->key, (GroupKey{Op::kForward, DType::kBF16, 40, 40, {}}));
  EXPECT_EQ(footprint->devices, 0b110);
  EXPECT_EQ(footprint->scratch_bytes, 300);
  EXPECT_EQ(footprint->input_bytes, 1024 + 1792 + 1792);  // 800, 1600, 1600
  EXPECT_EQ(footprint->output_bytes, 2 * 4096);
  EXPECT_EQ(footprint->bytes(),
            1024 + 1792 + 1792 + 2 * 4096 + 300 + footprint->host_bytes);
  EXPECT_EQ(footprint->flops, request.flops());
}

TEST(AdmissionTest, NoKernelAnywhereIsUnimplemented) {
  Device a(false, 0), b(false, 0);
  TestWork test({});
  EXPECT_EQ(Measure(*test.work()->request, {&a, &b}).status(),
            absl::UnimplementedError("not here"));
}

// Has a device's memory of its own.
class SmallDevice : public Device {
 public:
  SmallDevice(int64_t memory_bytes, int64_t scratch_bytes)
      : Device(true, scratch_bytes), info_(OfSize(memory_bytes)) {}
  const DeviceInfo& device() const override { return info_; }

 private:
  static DeviceInfo OfSize(int64_t memory_bytes) {
    DeviceInfo info;
    info.kind = "small";
    info.memory_bytes = memory_bytes;
    return info;
  }

  const DeviceInfo info_;
};

TEST(AdmissionTest, ADeviceWithoutTheMemoryDoesNotRunIt) {
  SmallDevice small(1 << 20, 2 << 20), large(8 << 20, 2 << 20);
  TestWork test({.q_len = 10});
  SchedulerOptions options;
  auto both = Measure(*test.work()->request, {&small, &large});
  ASSERT_EQ(both.status(), absl::OkStatus());
  EXPECT_EQ(both->devices, 0b10);
  EXPECT_EQ(CheckEverFits(*both, options), absl::OkStatus());

  auto none = Measure(*test.work()->request, {&small});
  ASSERT_EQ(none.status(), absl::OkStatus());
  absl::Status status = CheckEverFits(*none, options);
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("memory of small of 1048576"));
  EXPECT_THAT(status.message(), HasSubstr("options.algorithm"));
  // The limit is named first, as where devices have memory enough.
  options.memory_bytes = 1 << 19;
  status = CheckEverFits(*none, options);
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("memory limit of 524288"));
}

TEST(AdmissionTest, APlanForATeamGoesToTeamsAlone) {
  Device device(true, 0);
  TeamBackend team;
  for (const PlanKind plan :
       {PlanKind::kHeads, PlanKind::kGather, PlanKind::kRing,
        PlanKind::kStriped, PlanKind::kZigzag, PlanKind::kKv}) {
    TestWork test({.plan = plan});
    const Request& request = *test.work()->request;
    const auto footprint = Measure(request, {&device, &team});
    ASSERT_EQ(footprint.status(), absl::OkStatus());
    EXPECT_EQ(footprint->devices, 0b10);
    EXPECT_EQ(footprint->key.options.plan, plan);

    const absl::Status none = Measure(request, {&device}).status();
    EXPECT_EQ(none.code(), kInvalid);
    ASSERT_EQ(wire::FieldViolations(none).size(), 1);
    EXPECT_EQ(wire::FieldViolations(none)[0].field, "options.plan");
    EXPECT_THAT(none.message(), HasSubstr("has no team of devices"));

    Placement on_device;
    on_device.devices = 0b01;
    const absl::Status apart =
        Measure(request, {&device, &team}, on_device).status();
    EXPECT_EQ(apart.code(), kInvalid);
    ASSERT_EQ(wire::FieldViolations(apart).size(), 1);
    EXPECT_EQ(wire::FieldViolations(apart)[0].field, "options.plan");
  }
}

// The plan is a part of the key: requests that chose other ones are not in one
// group, and what a group has in it changes no one's plan.
TEST(AdmissionTest, AutoIsWhatTheTeamChoosesForTheRequestAlone) {
  Device device(true, 0);
  TeamBackend team;
  TestWork test({});
  const Request& request = *test.work()->request;
  auto footprint = Measure(request, {&device, &team});
  ASSERT_EQ(footprint.status(), absl::OkStatus());
  EXPECT_EQ(footprint->devices, 0b01);
  EXPECT_EQ(footprint->key.options.plan, PlanKind::kAuto);
  EXPECT_FALSE(footprint->plan.has_value());

  team.choice = {PlanKind::kGather, "it is the quickest"};
  footprint = Measure(request, {&device, &team});
  ASSERT_EQ(footprint.status(), absl::OkStatus());
  EXPECT_EQ(footprint->devices, 0b10);
  EXPECT_EQ(footprint->key.options.plan, PlanKind::kGather);
  ASSERT_TRUE(footprint->plan.has_value());
  EXPECT_EQ(footprint->plan->kind, PlanKind::kGather);
  EXPECT_EQ(footprint->plan->why, "it is the quickest");
  // Where that was asked for it was not chosen.
  TestWork asked({.plan = PlanKind::kGather});
  EXPECT_FALSE(
      Measure(*asked.work()->request, {&device, &team})->plan.has_value());
}

TEST(AdmissionTest, OneDeviceIsAnyThatIsNoTeam) {
  Device a(true, 0), b(true, 0);
  TeamBackend team;
  TestWork plain({}), one({.plan = PlanKind::kOneDevice});
  const auto footprint = Measure(*one.work()->request, {&a, &team, &b});
  ASSERT_EQ(footprint.status(), absl::OkStatus());
  EXPECT_EQ(footprint->devices, 0b101);
  // They may form a group.
  EXPECT_EQ(footprint->key, Measure(*plain.work()->request, {&a})->key);
}

TEST(AdmissionTest, PackedSequencesShareTheirScratch) {
  RequestSpec spec;
  spec.layout = Layout::kPacked;
  spec.q_lens = spec.kv_lens = {1, 2, 3};
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    spec.inputs[id] = {DType::kF32, {6, 1, 8}};
  }
  auto request = *Request::Create(std::move(spec));
  Device device(true, 100);
  EXPECT_EQ(Measure(*request, {&device})->scratch_bytes, 100);
}

TEST(AdmissionTest, OtherAlgorithmsCostWhatTheDearestDeviceSays) {
  Device no(false, 0, 9e9), cheap(true, 0, 1e6), dear(true, 0, 2e6);
  TestWork test({.q_len = 3, .kv_len = 4, .algorithm = Algorithm::kNaive});
  EXPECT_EQ(Measure(*test.work()->request, {&no, &cheap, &dear})->flops, 2e6);
  RequestSpec packed;
  packed.layout = Layout::kPacked;
  packed.q_lens = packed.kv_lens = {1, 2, 3};
  packed.algorithm = Algorithm::kFlashAttention2;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    packed.inputs[id] = {DType::kF32, {6, 1, 8}};
  }
  auto request = *Request::Create(std::move(packed));
  EXPECT_EQ(Measure(*request, {&cheap})->flops, 3e6);
}

// A window of 0 leaves 8192 pairs, but naive visits all of them, slowly.
TEST(AdmissionTest, NaiveOnACpuIsNeverNearlyFree) {
  auto cpu = *CreateCpuBackend({.threads = 1});
  const auto flops = [&](Algorithm algorithm) {
    RequestSpec spec;
    spec.algorithm = algorithm;
    spec.mask.left = spec.mask.right = 0;
    for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
      spec.inputs[id] = {DType::kF32, {1, 8192, 1, 8}};
    }
    auto request = *Request::Create(std::move(spec));
    return Measure(*request, {cpu.get()})->flops;
  };
  const double pair = 2 * (8 + 8), fast = flops(Algorithm::kAuto);
  EXPECT_NEAR(fast, 8192 * pair, 0.01 * 8192 * pair);
  EXPECT_GT(flops(Algorithm::kNaive), 8192.0 * 8192 * pair);
  EXPECT_GT(flops(Algorithm::kNaive), SchedulerOptions().small_request_flops);
  EXPECT_EQ(flops(Algorithm::kOnlineSoftmax), flops(Algorithm::kNaive));
  // These visit the blocks on the diagonal alone.
  for (Algorithm algorithm :
       {Algorithm::kFlashAttention1, Algorithm::kFlashAttention2}) {
    EXPECT_GT(flops(algorithm), 8192 * pair);
    EXPECT_LT(flops(algorithm), flops(Algorithm::kNaive) / 100);
  }
}

TEST(AdmissionTest, WhatNoMemoryCouldHoldDoesNotOverflow) {
  Device device(true, kMost);
  TestWork test({});
  auto footprint = Measure(*test.work()->request, {&device});
  ASSERT_EQ(footprint.status(), absl::OkStatus());
  EXPECT_EQ(footprint->bytes(), kMost);
  absl::Status status = CheckEverFits(*footprint, {});
  EXPECT_EQ(status.code(), kInvalid);
  ASSERT_EQ(wire::FieldViolations(status).size(), 1);
  EXPECT_EQ(wire::FieldViolations(status)[0].field, "options.algorithm");
}

TEST(AdmissionTest, LimitsAreInclusive) {
  SchedulerOptions options;
  options.memory_bytes = 1000;
  options.max_request_flops = 10;
  Footprint footprint;
  footprint.input_bytes = 600;
  footprint.output_bytes = 400;
  footprint.flops = 10;
  EXPECT_EQ(CheckEverFits(footprint, options), absl::OkStatus());
  footprint.flops = 11;
  EXPECT_THAT(CheckEverFits(footprint, options).message(),
              HasSubstr("more than the limit of 10"));
  footprint.flops = 10;
  footprint.output_bytes = 401;
  EXPECT_EQ(CheckEverFits(footprint, options).code(), kInvalid);
}

TEST(RateEstimateTest, TheDelayFollowsTheQueueAndTheRecentRate) {
  RateEstimate rate;
  EXPECT_EQ(rate.RetryDelay(1e12, 1), absl::Milliseconds(100));
  for (int i = 0; i < 100; ++i) rate.Add(1e9, absl::Milliseconds(100));
  EXPECT_NEAR(absl::ToDoubleSeconds(rate.RetryDelay(2e10, 1)), 2, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(rate.RetryDelay(2e10, 4)), 0.5, 0.01);
  EXPECT_EQ(rate.RetryDelay(0, 1), absl::Milliseconds(10));
  EXPECT_EQ(rate.RetryDelay(1e15, 2), absl::Seconds(5));
  EXPECT_EQ(rate.RetryDelay(1e15, 0), absl::Seconds(5));
  rate.Add(1e9, absl::ZeroDuration());
  for (int i = 0; i < 100; ++i) rate.Add(1e9, absl::Milliseconds(50));
  EXPECT_NEAR(absl::ToDoubleSeconds(rate.RetryDelay(2e10, 1)), 1, 0.01);
}

TEST(Measure, ChargesADescriptionByItsSequences) {
  IdentityBackend device;
  const auto host_bytes = [&](int64_t sequences) {
    RequestSpec spec;
    spec.layout = Layout::kPacked;
    spec.q_lens.assign(sequences, 0);
    spec.kv_lens.assign(sequences, 0);
    for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
      spec.inputs[id].emplace().shape = {0, 1, 8};
    }
    auto request = Request::Create(std::move(spec));
    EXPECT_TRUE(request.ok()) << request.status();
    auto footprint = Measure(**request, {&device});
    EXPECT_TRUE(footprint.ok()) << footprint.status();
    return footprint->host_bytes;
  };
  // A problem and its segment for each.
  EXPECT_GE(host_bytes(1000) - host_bytes(1),
            999 * (sizeof(BackwardArgs) + sizeof(KvSegment)));
}

}  // namespace
}  // namespace attnd::server
