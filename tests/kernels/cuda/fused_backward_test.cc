// What backward of a group launches, and what memory it takes, on a runtime
// that launches nothing.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/fused/backward.h"
#include "kernels/cuda/rows/gradient_rows.h"
#include "kernels/cuda/sm80/kernels.h"
#include "kernels/cuda/sm90/backward/tensor_maps.h"
#include "kernels/cuda/sm90/kernels.h"
#include "tests/kernels/cuda/fake_launch.h"
#include "tests/kernels/cuda/fake_runtime.h"

namespace attnd::cuda {
namespace {

// Their addresses.
const char prepare = 0, columns = 0, hopper = 0, plans = 0, finish = 0;

const Kernel& FakeKernel(const char& function) {
  static const Kernel kernels[] = {
      {.name = "prepare", .function = &prepare, .rows = 128, .threads = 32},
      {.name = "columns",
       .function = &columns,
       .rows = 64,
       .cols = 128,
       .threads = 32,
       .dim = 128},
      {.name = "hopper",
       .function = &hopper,
       .rows = 64,
       .cols = 128,
       .threads = 32,
       .dim = 64,
       .needs_maps = true,
       .dq_dim = 192,
       .plan_bytes = 400},
      {.name = "plans", .function = &plans, .threads = 32},
      {.name = "finish", .function = &finish, .rows = 128, .threads = 32}};
  for (const Kernel& kernel : kernels) {
    if (kernel.function == &function) return kernel;
  }
  return kernels[0];
}

}  // namespace

// In place of what is compiled for a GPU.
const Kernel& PrepareRowsKernel(DType) { return FakeKernel(prepare); }
const Kernel& FinishDqKernel() { return FakeKernel(finish); }
const Kernel& sm90::PlanColumnsKernel() { return FakeKernel(plans); }
const Kernel& sm80::FindBackwardKernel(DType, int64_t, int64_t, int) {
  return FakeKernel(columns);
}
const Kernel* sm90::FindBackward(const Problem& p) {
  return p.head_dim == 64 ? &FakeKernel(hopper) : nullptr;
}
std::optional<sm90::TensorMaps> sm90::MakeBackwardMaps(
    const BackwardArgs& args) {
  if (args.problem.q.token_stride % 8 != 0) return std::nullopt;
  TensorMaps made;
  made.maps.resize(KMap(static_cast<int>(args.problem.kv.size())));
  return made;
}

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr Gpu kHopper = {.capability = kHopperCapability};
constexpr Gpu kHopperGpu = {.capability = kHopperCapability,
                            .multiprocessors = 4};

// A problem whose tensors are nowhere: nobody reads them.
struct Backward {
  explicit Backward(int64_t q_len, int64_t kv_len = 300, int64_t q_heads = 2,
                    int64_t dim = 128) {
    static char memory = 0;
    ConstTensorView view;
    view.data = &memory;
    view.dtype = DType::kBF16;
    TensorView output;
    output.data = &memory;
    output.dtype = DType::kBF16;
    segment.k = segment.v = view;
    segment.dk = segment.dv = output;
    segment.len = kv_len;
    Problem& p = args.problem;
    p.batch = 1;
    p.q_len = q_len;
    p.q_heads = q_heads;
    p.kv_heads = 1;
    p.head_dim = p.value_dim = dim;
    p.q = args.d_o = args.o = view;
    p.kv = {&segment, 1};
    args.dq = output;
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  KvSegment segment;
  BackwardArgs args;
};

class FusedBackwardTest : public ::testing::Test {
 protected:
  FusedBackwardTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    workspace_ = std::make_unique<Workspace>(stream_);
    testing::TakeFakeLaunches();
  }
  ~FusedBackwardTest() override {
    testing::SetFakeDeviceMemory(int64_t{1} << 30);
    // What was enqueued copies from the workspace's memory.
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    workspace_ = nullptr;
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  absl::StatusOr<LaunchCounts> Enqueue(
      std::vector<BackwardArgs> group,
      const FusedBackwardOptions& options = {}) {
    return EnqueueFusedBackward(group, kHopper, *workspace_, options);
  }

  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Workspace> workspace_;
};

// The kernels that were launched since the last call: p, c or th (what its
// tiles are, first), and f.
std::string Launched() {
  std::string kernels;
  for (const testing::FakeLaunch& launch : testing::TakeFakeLaunches()) {
    kernels += launch.kernel == &prepare   ? 'p'
               : launch.kernel == &columns ? 'c'
               : launch.kernel == &plans   ? 't'
               : launch.kernel == &hopper  ? 'h'
               : launch.kernel == &finish  ? 'f'
                                           : '?';
  }
  return kernels;
}

TEST_F(FusedBackwardTest, LaunchesRowsThenColumnsThenTheEndOfDq) {
  const Backward backward(200);
  const auto counts = Enqueue({backward.args});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 3);
  EXPECT_EQ(counts->copies, 0);
  const auto launches = testing::TakeFakeLaunches();
  ASSERT_EQ(launches.size(), 3);
  EXPECT_EQ(launches[0].kernel, &prepare);
  EXPECT_EQ(launches[0].blocks, 2 * 2);  // heads, blocks of 128 rows
  EXPECT_EQ(launches[1].kernel, &columns);
  EXPECT_EQ(launches[1].blocks, 3);  // blocks of 128 columns
  EXPECT_EQ(launches[2].kernel, &finish);
  EXPECT_EQ(launches[2].blocks, 2 * 2);
}

TEST_F(FusedBackwardTest, ProblemsShareLaunches) {
  const Backward a(200), b(17), c(3000);
  ASSERT_TRUE(Enqueue({a.args, b.args, c.args}).ok());
  EXPECT_EQ(Launched(), "pcf");
}

TEST_F(FusedBackwardTest, HoppersKernelRunsWhatItFindsInMemory) {
  const Backward other(200), aligned(200, 300, 2, 64);
  Backward misaligned(200, 300, 2, 64);
  misaligned.args.problem.q.token_stride = 65;
  ASSERT_TRUE(Enqueue({aligned.args}).ok());
  EXPECT_EQ(Launched(), "pthf");
  ASSERT_TRUE(Enqueue({misaligned.args}).ok());
  EXPECT_EQ(Launched(), "pcf");
  ASSERT_TRUE(Enqueue({aligned.args, misaligned.args}).ok());
  EXPECT_EQ(Launched(), "pthcf");
  ASSERT_TRUE(Enqueue({other.args}).ok());
  EXPECT_EQ(Launched(), "pcf");
  ASSERT_TRUE(Enqueue({aligned.args}, {.any_gpu = true}).ok());
  EXPECT_EQ(Launched(), "pcf");
}

TEST_F(FusedBackwardTest, LaunchesNoEndWhereNobodyWantsDq) {
  Backward backward(200);
  backward.args.dq = {};
  ASSERT_TRUE(Enqueue({backward.args}).ok());
  EXPECT_EQ(Launched(), "pc");
}

TEST_F(FusedBackwardTest, LaunchesNothingForNothing) {
  Backward nothing(200), no_batch(200), no_rows(0, 0);
  nothing.args.dq = {};
  nothing.segment.dk = nothing.segment.dv = {};
  no_batch.args.problem.batch = 0;
  ASSERT_TRUE(Enqueue({}).ok());
  const auto counts = Enqueue({nothing.args, no_batch.args, no_rows.args});
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 0);
  EXPECT_EQ(Launched(), "");
}

// dQ of rows without columns, and dK and dV of columns without rows, are 0:
// someone must write that.
TEST_F(FusedBackwardTest, RowsOrColumnsAloneAreSomething) {
  const Backward rows(200, 0), columns_only(0, 300);
  ASSERT_TRUE(Enqueue({rows.args}).ok());
  EXPECT_EQ(Launched(), "pf");
  ASSERT_TRUE(Enqueue({columns_only.args}).ok());
  EXPECT_EQ(Launched(), "c");
}

TEST_F(FusedBackwardTest, LeavesOutWhatIsCancelled) {
  const Backward alive(200);
  Backward cancelled(3000);
  CancelToken token;
  token.Cancel();
  cancelled.args.problem.cancel = &token;
  ASSERT_TRUE(Enqueue({cancelled.args, cancelled.args}).ok());
  EXPECT_EQ(Launched(), "");
  ASSERT_TRUE(Enqueue({cancelled.args, alive.args}).ok());
  const auto launches = testing::TakeFakeLaunches();
  ASSERT_EQ(launches.size(), 3);
  EXPECT_EQ(launches[1].blocks, 3);  // of the other alone
}

TEST_F(FusedBackwardTest, ALargeGroupsDescriptionIsCopiedOnce) {
  const Backward backward(20);
  const auto counts = Enqueue(std::vector<BackwardArgs>(100, backward.args));
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->kernels, 3);
  EXPECT_EQ(counts->copies, 1);
}

TEST_F(FusedBackwardTest, TakesNoMoreMemoryThanItSays) {
  // The first blocks of descriptors and counters.
  constexpr int64_t kOthers = 2 * (int64_t{64} << 10);
  for (int64_t q_len : {1, 127, 128, 129, 1000, 10000}) {
    for (int64_t q_heads : {1, 7, 32}) {
      for (auto [dim, kv_len] : {std::pair<int64_t, int64_t>{64, 300},
                                 {64, 1'000'000},
                                 {128, 300}}) {
        const Backward backward(q_len, kv_len, q_heads, dim);
        Workspace fresh(stream_);
        ASSERT_TRUE(EnqueueFusedBackward({&backward.args, 1}, kHopper, fresh,
                                         {.deterministic = true})
                        .ok());
        const int64_t says = FusedBackwardScratchBytes(backward.args.problem);
        EXPECT_LE(fresh.device_bytes(),
                  std::max(says, int64_t{64} << 10) + kOthers)
            << q_len << " rows of " << q_heads << " heads of " << dim << ", "
            << kv_len << " columns";
      }
    }
  }
}

// The sum of what launches of a kernel have of blocks of threads.
int64_t BlocksOf(const std::vector<testing::FakeLaunch>& launches,
                 const char& kernel) {
  int64_t blocks = 0;
  for (const testing::FakeLaunch& launch : launches) {
    if (launch.kernel == &kernel) blocks += launch.blocks;
  }
  return blocks;
}

// Small enough that a launch of many tiles is cut.
const SliceOptions kSmallest = {.time = absl::Nanoseconds(1), .least_waves = 1};

TEST_F(FusedBackwardTest, SlicesAreTheLaunchesOfTheWholeInTheirOrder) {
  const Backward a(2000, 10000, 4), b(300, 3000);
  const std::vector<BackwardArgs> group = {a.args, b.args};
  ASSERT_TRUE(EnqueueFusedBackward(group, kHopperGpu, *workspace_).ok());
  const auto whole = testing::TakeFakeLaunches();
  auto rest = BeginFusedBackward(group, kHopperGpu, *workspace_, kSmallest);
  ASSERT_TRUE(rest.ok()) << rest.status();
  ASSERT_NE(*rest, nullptr);
  std::vector<testing::FakeLaunch> sliced;
  double share = 0;
  int slices = 1;
  while (true) {
    const auto launches = testing::TakeFakeLaunches();
    EXPECT_EQ(launches.size(), 1);
    sliced.insert(sliced.end(), launches.begin(), launches.end());
    EXPECT_GT((*rest)->share(), share);
    share = (*rest)->share();
    if (share == 1) break;
    ASSERT_TRUE((*rest)->EnqueueSlice().ok());
    ++slices;
  }
  EXPECT_GT(slices, 10);
  for (const char* kernel : {&prepare, &columns, &finish}) {
    EXPECT_EQ(BlocksOf(sliced, *kernel), BlocksOf(whole, *kernel));
  }
  const auto stage = [](const testing::FakeLaunch& launch) {
    return launch.kernel == &prepare ? 0 : launch.kernel == &columns ? 1 : 2;
  };
  EXPECT_TRUE(std::is_sorted(
      sliced.begin(), sliced.end(),
      [&](const auto& x, const auto& y) { return stage(x) < stage(y); }));
}

TEST_F(FusedBackwardTest, ASmallGroupIsNotCut) {
  const Backward backward(200);
  const auto rest = BeginFusedBackward({&backward.args, 1}, kHopperGpu,
                                       *workspace_, SliceOptions());
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(*rest, nullptr);
  EXPECT_EQ(Launched(), "pcf");
}

TEST_F(FusedBackwardTest, NothingMoreIsLaunchedOnceAllIsCancelled) {
  Backward backward(2000, 10000);
  CancelToken token;
  backward.args.problem.cancel = &token;
  auto rest = BeginFusedBackward({&backward.args, 1}, kHopperGpu, *workspace_,
                                 kSmallest);
  ASSERT_TRUE(rest.ok()) << rest.status();
  ASSERT_NE(*rest, nullptr);
  testing::TakeFakeLaunches();
  token.Cancel();
  ASSERT_TRUE((*rest)->EnqueueSlice().ok());
  EXPECT_EQ((*rest)->share(), 1);
  EXPECT_EQ(Launched(), "");
}

TEST_F(FusedBackwardTest, ACancelledProblemIsLeftOutFromTheNextSliceOn) {
  Backward cancelled(2000, 10000);
  const Backward alive(300, 3000);
  CancelToken token;
  cancelled.args.problem.cancel = &token;
  const std::vector<BackwardArgs> group = {cancelled.args, alive.args};
  auto rest = BeginFusedBackward(group, kHopperGpu, *workspace_, kSmallest);
  ASSERT_TRUE(rest.ok()) << rest.status();
  token.Cancel();
  testing::TakeFakeLaunches();
  while ((*rest)->share() < 1) ASSERT_TRUE((*rest)->EnqueueSlice().ok());
  const auto launches = testing::TakeFakeLaunches();
  EXPECT_EQ(BlocksOf(launches, columns), 24);  // of the other alone
  EXPECT_EQ(BlocksOf(launches, finish), 2 * 3);
}

// Each takes about 40 MiB.
constexpr int64_t kLongRows = 40000;

TEST_F(FusedBackwardTest, LongProblemsTakeTheirScratchInTurn) {
  const Backward backward(kLongRows);
  const int64_t bytes = FusedBackwardScratchBytes(backward.args.problem);
  ASSERT_GT(bytes, 35 * kMiB);
  const auto counts = Enqueue(std::vector<BackwardArgs>(4, backward.args));
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(Launched(), "pcfpcfpcfpcf");
  EXPECT_LE(workspace_->device_bytes(), 64 * kMiB);
}

TEST_F(FusedBackwardTest, NoMemoryIsResourceExhaustedAndNothingIsLaunched) {
  const Backward backward(kLongRows), small(200);
  testing::SetFakeDeviceMemory(testing::FakeCuda().device_bytes + 20 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(Enqueue({backward.args}).status()));
  EXPECT_EQ(Launched(), "");
  ASSERT_TRUE(Enqueue({small.args}).ok());
  EXPECT_EQ(Launched(), "pcf");
  testing::SetFakeDeviceMemory(int64_t{1} << 30);
  ASSERT_TRUE(Enqueue({backward.args}).ok());
  EXPECT_EQ(Launched(), "pcf");
}

// Also where there is enough for those that come first.
TEST_F(FusedBackwardTest, NoMemoryForTheLastIsNothingLaunchedAtAll) {
  const Backward fits(kLongRows), does_not(3 * kLongRows);
  testing::SetFakeDeviceMemory(testing::FakeCuda().device_bytes + 60 * kMiB);
  const auto counts = Enqueue({fits.args, fits.args, does_not.args});
  EXPECT_TRUE(absl::IsResourceExhausted(counts.status()));
  EXPECT_EQ(Launched(), "");
  EXPECT_TRUE(absl::IsResourceExhausted(
      BeginFusedBackward({fits.args, does_not.args}, kHopperGpu, *workspace_,
                         kSmallest)
          .status()));
  EXPECT_EQ(Launched(), "");
}

// Scratch, counters and descriptions, of chunks that have not begun either.
TEST_F(FusedBackwardTest, SlicesTakeNoMemoryAfterTheFirst) {
  const Backward large(kLongRows), small(20);
  std::vector<BackwardArgs> group(30, small.args);  // more than a parameter
  for (int n = 0; n < 3; ++n) group.push_back(large.args);
  group.insert(group.end(), 30, small.args);
  auto rest = BeginFusedBackward(group, kHopperGpu, *workspace_, kSmallest);
  ASSERT_TRUE(rest.ok()) << rest.status();
  ASSERT_NE(*rest, nullptr);
  testing::SetFakeDeviceMemory(0);
  testing::SetFakePinnedMemory(0);
  while ((*rest)->share() < 1) {
    const absl::Status status = (*rest)->EnqueueSlice();
    ASSERT_TRUE(status.ok()) << status;
  }
  testing::SetFakePinnedMemory(int64_t{1} << 30);
}

}  // namespace
}  // namespace attnd::cuda
