#include "kernels/cuda/capi/capi.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/capi_problem.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/group_image.h"

namespace attnd {
namespace {

using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;
using GroupImage = testing::GroupImage<ForwardArgs>;
using testing::ToC;

DenseShape SmallShape() {
  return {.batch = 2, .q_len = 50, .kv_len = 90, .q_heads = 4, .kv_heads = 2};
}

TEST(CapiTest, SaysWhatIsWrongWithAProblem) {
  DenseProblem dense(1, SmallShape());
  AttndPlan* plan = nullptr;
  const auto create = [&](const AttndForwardProblem& p) {
    return attnd_plan_create(&p, 1, ATTND_AUTO, nullptr, &plan);
  };
  constexpr int kInvalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
  AttndForwardProblem problem = ToC(dense.args);
  EXPECT_EQ(attnd_plan_create(&problem, 0, ATTND_AUTO, nullptr, &plan),
            kInvalid);
  EXPECT_EQ(attnd_plan_create(&problem, 1, 77, nullptr, &plan), kInvalid);
  problem.q_heads = 3;
  EXPECT_EQ(create(problem), kInvalid);
  EXPECT_EQ(std::string(attnd_last_error()),
            "q_heads must be a multiple of kv_heads");
  problem = ToC(dense.args);
  problem.o.data = nullptr;
  EXPECT_EQ(create(problem), kInvalid);
  problem = ToC(dense.args);
  problem.head_dim = 257;
  EXPECT_EQ(create(problem), kInvalid);
  EXPECT_EQ(plan, nullptr);
  AttndForwardProblem unlike[] = {ToC(dense.args), ToC(dense.args)};
  unlike[1].dtype = ATTND_F32;
  EXPECT_EQ(attnd_plan_create(unlike, 2, ATTND_AUTO, nullptr, &plan), kInvalid);
}

using Bits = std::vector<std::vector<uint8_t>>;

// A group of problems, its copy on the device, and a plan for that.
class CapiDeviceTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    // Too many for one launch's parameters.
    for (int i = 0; i < 60; ++i) {
      DenseShape shape = SmallShape();
      shape.q_len = 1 + i;
      shape.kv_len = i % 10 == 0 ? 3000 : 70;
      shape.mask.causal = i % 2 == 1;
      problems_.push_back(std::make_unique<DenseProblem>(i, shape));
    }
  }

  void TearDown() override {
    if (plan_ != nullptr) attnd_plan_destroy(plan_);
    EXPECT_TRUE(memory_ == nullptr || cudaFree(memory_) == cudaSuccess);
    EXPECT_TRUE(stream_ == nullptr ||
                cudaStreamDestroy(stream_) == cudaSuccess);
  }

  std::vector<ForwardArgs> Group() {
    std::vector<ForwardArgs> group;
    for (const auto& p : problems_) group.push_back(p->args);
    return group;
  }

  // Outputs are NaN on the device and on the host.
  void Upload() {
    for (const auto& p : problems_) {
      p->o.Poison();
      p->lse.Poison();
    }
    image_ = std::make_unique<GroupImage>(Group());
    const size_t bytes = image_->bytes().size();
    if (memory_ == nullptr) {
      ASSERT_EQ(cudaMalloc(&memory_, bytes), cudaSuccess);
    }
    ASSERT_EQ(cudaMemcpy(memory_, image_->bytes().data(), bytes,
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }

  void MakePlan() {
    std::vector<AttndForwardProblem> problems;
    for (const auto& args : image_->Rebind(static_cast<std::byte*>(memory_))) {
      problems.push_back(ToC(args));
    }
    ASSERT_EQ(attnd_plan_create(problems.data(), problems.size(), ATTND_AUTO,
                                stream_, &plan_),
              0)
        << attnd_last_error();
  }

  Bits Download() {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<std::byte> after(image_->bytes().size());
    EXPECT_EQ(
        cudaMemcpy(after.data(), memory_, after.size(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    const absl::Status status = image_->TakeOutputs(after);
    EXPECT_TRUE(status.ok()) << status;
    return Outputs();
  }

  Bits Outputs() {
    Bits bits;
    for (const auto& p : problems_) {
      bits.push_back(p->o.bytes());
      bits.push_back(p->lse.bytes());
    }
    return bits;
  }

  // What the call below gives.
  Bits Expected() {
    const auto counts = device().Forward(Group());
    EXPECT_TRUE(counts.ok()) << counts.status();
    return Outputs();
  }

  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<DenseProblem>> problems_;
  std::unique_ptr<GroupImage> image_;
  void* memory_ = nullptr;
  AttndPlan* plan_ = nullptr;
};

TEST_F(CapiDeviceTest, GivesTheBitsThatTheCallBelowItGives) {
  const Bits expected = Expected();
  Upload();
  MakePlan();
  AttndEnqueued enqueued = {};
  ASSERT_EQ(attnd_plan_enqueue(plan_, &enqueued), 0) << attnd_last_error();
  EXPECT_TRUE(Download() == expected);
  EXPECT_LE(enqueued.kernels, 3);  // for decode, short and long sequences
  EXPECT_GT(enqueued.host_ns, 0);
  attnd_plan_recycle(plan_);

  Upload();
  ASSERT_EQ(attnd_plan_enqueue_each(plan_, &enqueued), 0) << attnd_last_error();
  EXPECT_TRUE(Download() == expected);
  EXPECT_GE(enqueued.kernels, 60);
}

TEST_F(CapiDeviceTest, ACapturedPlanReplays) {
  const Bits expected = Expected();
  Upload();
  MakePlan();
  ASSERT_EQ(attnd_plan_enqueue(plan_, nullptr), 0) << attnd_last_error();
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  attnd_plan_recycle(plan_);

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal),
            cudaSuccess);
  EXPECT_EQ(attnd_plan_enqueue(plan_, nullptr), 0) << attnd_last_error();
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int run = 0; run < 3; ++run) {
    Upload();
    ASSERT_EQ(cudaGraphLaunch(replay, stream_), cudaSuccess);
    EXPECT_TRUE(Download() == expected) << "replay " << run;
  }
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace attnd
