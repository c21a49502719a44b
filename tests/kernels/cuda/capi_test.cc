#include "kernels/cuda/capi.h"

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"
#include "tests/kernels/cuda/group_image.h"

namespace attnd {
namespace {

using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;
using testing::GroupImage;

template <class View>
AttndTensor ToC(const View& t) {
  return {const_cast<void*>(static_cast<const void*>(t.data)), t.batch_stride,
          t.token_stride, t.head_stride};
}

// The same problem in C's terms.
AttndForwardProblem ToC(const ForwardArgs& args) {
  const Problem& p = args.problem;
  return {.batch = p.batch,
          .q_len = p.q_len,
          .kv_len = p.kv[0].len,
          .q_heads = p.q_heads,
          .kv_heads = p.kv_heads,
          .head_dim = p.head_dim,
          .value_dim = p.value_dim,
          .q = ToC(p.q),
          .k = ToC(p.kv[0].k),
          .v = ToC(p.kv[0].v),
          .o = ToC(args.o),
          .lse = args.lse.data,
          .left = p.mask.left,
          .right = p.mask.right,
          .causal = p.mask.causal,
          .dtype = static_cast<int32_t>(p.q.dtype),
          .scale = p.scale};
}

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

class CapiDeviceTest : public DeviceTest {
 protected:
  // Runs the group through the C interface.
  void RunInC(const std::vector<ForwardArgs>& group, bool each,
              AttndEnqueued* enqueued) {
    GroupImage image(group);
    const size_t bytes = image.bytes().size();
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    ASSERT_EQ(
        cudaMemcpy(memory, image.bytes().data(), bytes, cudaMemcpyHostToDevice),
        cudaSuccess);
    std::vector<AttndForwardProblem> problems;
    for (const auto& args : image.Rebind(static_cast<std::byte*>(memory))) {
      problems.push_back(ToC(args));
    }
    AttndPlan* plan = nullptr;
    ASSERT_EQ(attnd_plan_create(problems.data(), problems.size(), ATTND_AUTO,
                                nullptr, &plan),
              0)
        << attnd_last_error();
    const auto enqueue = each ? attnd_plan_enqueue_each : attnd_plan_enqueue;
    EXPECT_EQ(enqueue(plan, enqueued), 0) << attnd_last_error();
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    attnd_plan_recycle(plan);
    attnd_plan_destroy(plan);
    std::vector<std::byte> after(bytes);
    ASSERT_EQ(cudaMemcpy(after.data(), memory, bytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    const absl::Status status = image.TakeOutputs(after);
    EXPECT_TRUE(status.ok()) << status;
  }
};

TEST_F(CapiDeviceTest, GivesTheBitsThatTheCallBelowItGives) {
  DenseShape causal = SmallShape();
  causal.mask.causal = true;
  DenseProblem first(1, SmallShape()), second(2, causal);
  const std::vector<ForwardArgs> group = {first.args, second.args};
  const auto counts = device().Forward(group);
  ASSERT_TRUE(counts.ok()) << counts.status();
  const auto o = second.o.bytes();
  const auto lse = second.lse.bytes();
  for (bool each : {false, true}) {
    second.o.Poison();
    second.lse.Poison();
    AttndEnqueued enqueued = {};
    RunInC(group, each, &enqueued);
    EXPECT_TRUE(second.o.bytes() == o && second.lse.bytes() == lse);
    EXPECT_GE(enqueued.kernels, each ? 2 : counts->kernels);
    EXPECT_GT(enqueued.host_ns, 0);
  }
}

}  // namespace
}  // namespace attnd
