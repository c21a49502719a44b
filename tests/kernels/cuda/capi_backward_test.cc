#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backward.h"
#include "kernels/cuda/capi/capi.h"
#include "kernels/dtype.h"
#include "tests/kernels/cuda/capi_problem.h"
#include "tests/kernels/cuda/dense_problem.h"
#include "tests/kernels/cuda/device_runner.h"

namespace attnd {
namespace {

using testing::DenseProblem;
using testing::DenseShape;
using testing::DeviceTest;
using testing::ToC;

using Bytes = std::vector<uint8_t>;

// Both directions of a problem in host memory, which never runs there.
struct Dense {
  explicit Dense(const DenseShape& shape)
      : forward(1, shape), upstream(2, shape) {}

  AttndBackwardProblem problem() {
    return {.forward = ToC(forward.args),
            .d_o = ToC(upstream.args.problem.q),
            .dq = ToC(forward.args.o),
            .dk = ToC(forward.args.problem.kv[0].k),
            .dv = ToC(forward.args.problem.kv[0].v)};
  }

  DenseProblem forward, upstream;  // of the second Q alone
};

constexpr int kInvalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
constexpr int kUnimplemented =
    static_cast<int>(absl::StatusCode::kUnimplemented);

int Create(const AttndBackwardProblem& p, int32_t algorithm = ATTND_AUTO) {
  AttndPlan* plan = nullptr;
  const int code =
      attnd_backward_plan_create(&p, 1, algorithm, 0, nullptr, &plan);
  EXPECT_EQ(plan != nullptr, code == 0);
  if (plan != nullptr) attnd_plan_destroy(plan);
  return code;
}

TEST(CapiBackwardTest, SaysWhatIsWrongWithAProblem) {
  Dense dense({.q_len = 50, .kv_len = 90, .q_heads = 4, .kv_heads = 2});
  AttndBackwardProblem problem = dense.problem();
  problem.forward.q_heads = 3;
  EXPECT_EQ(Create(problem), kInvalid);
  EXPECT_EQ(std::string(attnd_last_error()),
            "q_heads must be a multiple of kv_heads");
  problem = dense.problem();
  problem.forward.lse = nullptr;
  EXPECT_EQ(Create(problem), kInvalid);
  EXPECT_EQ(std::string(attnd_last_error()), "backward needs LSE");
  problem = dense.problem();
  problem.d_o.data = nullptr;
  EXPECT_EQ(Create(problem), kInvalid);
  EXPECT_EQ(Create(dense.problem(), ATTND_ANY_GPU + 1), kInvalid);
  AttndBackwardProblem unlike[] = {dense.problem(), dense.problem()};
  unlike[1].forward.dtype = ATTND_F32;
  AttndPlan* plan = nullptr;
  EXPECT_EQ(
      attnd_backward_plan_create(unlike, 2, ATTND_AUTO, 0, nullptr, &plan),
      kInvalid);
  EXPECT_EQ(
      attnd_backward_plan_create(unlike, 0, ATTND_AUTO, 0, nullptr, &plan),
      kInvalid);
  EXPECT_EQ(plan, nullptr);
}

TEST(CapiBackwardTest, SaysWhatThereIsNoKernelFor) {
  Dense dense({.q_len = 50, .kv_len = 90});
  EXPECT_EQ(Create(dense.problem(), ATTND_ONLINE_SOFTMAX), kUnimplemented);
  const AttndForwardProblem forward = dense.problem().forward;
  AttndPlan* plan = nullptr;
  EXPECT_EQ(
      attnd_plan_create(&forward, 1, ATTND_NAIVE_AUTOGRAD, nullptr, &plan),
      kUnimplemented);
  EXPECT_EQ(plan, nullptr);
}

TEST(CapiBackwardTest, TakesEveryAlgorithmThatThereIs) {
  Dense dense({.q_len = 50, .kv_len = 90});
  for (int32_t algorithm : {ATTND_AUTO, ATTND_NAIVE, ATTND_FLASH_ATTENTION_2,
                            ATTND_NAIVE_AUTOGRAD, ATTND_ANY_GPU}) {
    EXPECT_EQ(Create(dense.problem(), algorithm), 0)
        << algorithm << ": " << attnd_last_error();
  }
}

TEST(CapiBackwardTest, AGradientThatIsNotWantedIsNoError) {
  Dense dense({.q_len = 50, .kv_len = 90});
  AttndBackwardProblem problem = dense.problem();
  problem.dq.data = problem.dk.data = nullptr;
  EXPECT_EQ(Create(problem), 0) << attnd_last_error();
}

// Device memory that begins as a copy of a tensor's.
class DeviceMemory {
 public:
  explicit DeviceMemory(Bytes bytes) : bytes_(std::move(bytes)) {
    EXPECT_EQ(cudaMalloc(&data_, bytes_.size()), cudaSuccess);
    Reset();
  }
  ~DeviceMemory() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void Reset() {
    EXPECT_EQ(
        cudaMemcpy(data_, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice),
        cudaSuccess);
  }
  Bytes Download() const {
    Bytes bytes(bytes_.size());
    EXPECT_EQ(
        cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    return bytes;
  }

  // The view of a host tensor without gaps, of this memory.
  template <class View>
  View Of(View view) const {
    view.data = static_cast<decltype(view.data)>(data_);
    return view;
  }

 private:
  const Bytes bytes_;
  void* data_ = nullptr;
};

// A problem on the device. Its outputs are NaN at first.
class DeviceProblem {
 public:
  DeviceProblem(uint32_t seed, const DenseShape& shape)
      : dense_(seed, shape),
        upstream_(seed + 1000, shape),
        q_(dense_.q.bytes()),
        k_(dense_.k.bytes()),
        v_(dense_.v.bytes()),
        d_o_(upstream_.q.bytes()),
        o_(dense_.o.bytes()),
        lse_(dense_.lse.bytes()),
        dq_(Bytes(dense_.q.bytes().size(), 0xff)),
        dk_(Bytes(dense_.k.bytes().size(), 0xff)),
        dv_(Bytes(dense_.v.bytes().size(), 0xff)) {
    segment_ = dense_.args.problem.kv[0];
    segment_.k = k_.Of(segment_.k);
    segment_.v = v_.Of(segment_.v);
    segment_.dk = dk_.Of(dense_.k.view());
    segment_.dv = dv_.Of(dense_.v.view());
    forward_.problem = dense_.args.problem;
    forward_.problem.q = q_.Of(forward_.problem.q);
    forward_.problem.kv = {&segment_, 1};
    forward_.o = o_.Of(dense_.o.view());
    forward_.lse = lse_.Of(dense_.lse.view());
    backward_.problem = forward_.problem;
    backward_.d_o = d_o_.Of(upstream_.args.problem.q);
    backward_.o = o_.Of(std::as_const(dense_.o).view());
    backward_.lse = lse_.Of(std::as_const(dense_.lse).view());
    backward_.dq = dq_.Of(dense_.q.view());
  }

  const BackwardArgs& backward() const { return backward_; }
  AttndForwardProblem c_forward() const { return ToC(forward_); }
  AttndBackwardProblem c_backward() const {
    return {.forward = c_forward(),
            .d_o = ToC(backward_.d_o),
            .dq = ToC(backward_.dq),
            .dk = ToC(segment_.dk),
            .dv = ToC(segment_.dv)};
  }

  void ResetGradients() {
    for (DeviceMemory* m : {&dq_, &dk_, &dv_}) m->Reset();
  }
  std::vector<Bytes> Gradients() const {
    return {dq_.Download(), dk_.Download(), dv_.Download()};
  }
  Bytes Output() const { return o_.Download(); }

 private:
  DenseProblem dense_, upstream_;
  DeviceMemory q_, k_, v_, d_o_, o_, lse_, dq_, dk_, dv_;
  KvSegment segment_;
  ForwardArgs forward_;
  BackwardArgs backward_;
};

// Problems whose O and LSE are there, and what runs their backward.
class CapiBackwardDeviceTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    stream_ = device().workspace().stream();
    // Too many for one launch's parameters.
    for (int i = 0; i < 20; ++i) {
      DenseShape shape = {.batch = 2, .q_heads = 4, .kv_heads = 2};
      shape.q_len = 1 + 23 * i;
      shape.kv_len = i % 10 == 0 ? 1000 : 70 + i;
      shape.mask.causal = i % 2 == 1;
      problems_.push_back(std::make_unique<DeviceProblem>(i, shape));
    }
    RunForward(ATTND_AUTO);
  }

  void RunForward(int32_t algorithm) {
    std::vector<AttndForwardProblem> problems;
    for (const auto& p : problems_) problems.push_back(p->c_forward());
    AttndPlan* plan = nullptr;
    ASSERT_EQ(attnd_plan_create(problems.data(), problems.size(), algorithm,
                                stream_, &plan),
              0)
        << attnd_last_error();
    EXPECT_EQ(attnd_plan_enqueue(plan, nullptr), 0) << attnd_last_error();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    attnd_plan_destroy(plan);
  }

  // Calls `run` with a plan for the problems' backward.
  void WithPlan(int32_t algorithm, bool deterministic,
                const std::function<void(AttndPlan*)>& run) {
    std::vector<AttndBackwardProblem> problems;
    for (const auto& p : problems_) problems.push_back(p->c_backward());
    AttndPlan* plan = nullptr;
    ASSERT_EQ(
        attnd_backward_plan_create(problems.data(), problems.size(), algorithm,
                                   deterministic, stream_, &plan),
        0)
        << attnd_last_error();
    run(plan);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    attnd_plan_destroy(plan);
  }

  // Of all problems; what it finds is NaN again the next time.
  std::vector<Bytes> TakeGradients() {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<Bytes> all;
    for (const auto& p : problems_) {
      for (Bytes& bytes : p->Gradients()) all.push_back(std::move(bytes));
      p->ResetGradients();
    }
    return all;
  }

  // What the call below gives.
  std::vector<Bytes> Expected() {
    std::vector<BackwardArgs> group;
    for (const auto& p : problems_) group.push_back(p->backward());
    const auto counts = cuda::EnqueueBackward(
        group, {.deterministic = true}, device().gpu(), device().workspace());
    EXPECT_TRUE(counts.ok()) << counts.status();
    return TakeGradients();
  }

  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<DeviceProblem>> problems_;
};

TEST_F(CapiBackwardDeviceTest, GivesTheBitsThatTheCallBelowItGives) {
  const std::vector<Bytes> expected = Expected();
  WithPlan(ATTND_AUTO, /*deterministic=*/true, [&](AttndPlan* plan) {
    AttndEnqueued enqueued = {};
    ASSERT_EQ(attnd_plan_enqueue(plan, &enqueued), 0) << attnd_last_error();
    EXPECT_TRUE(TakeGradients() == expected);
    EXPECT_LT(enqueued.kernels, 20);
    EXPECT_GT(enqueued.host_ns, 0);
    EXPECT_GT(enqueued.device_bytes, 0);
    attnd_plan_recycle(plan);
    ASSERT_EQ(attnd_plan_enqueue_each(plan, &enqueued), 0)
        << attnd_last_error();
    EXPECT_TRUE(TakeGradients() == expected);
    EXPECT_GE(enqueued.kernels, 20);
  });
}

TEST_F(CapiBackwardDeviceTest, ACapturedPlanReplays) {
  const std::vector<Bytes> expected = Expected();
  WithPlan(ATTND_AUTO, /*deterministic=*/true, [&](AttndPlan* plan) {
    ASSERT_EQ(attnd_plan_enqueue(plan, nullptr), 0) << attnd_last_error();
    TakeGradients();
    attnd_plan_recycle(plan);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal),
              cudaSuccess);
    EXPECT_EQ(attnd_plan_enqueue(plan, nullptr), 0) << attnd_last_error();
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    for (int run = 0; run < 3; ++run) {
      ASSERT_EQ(cudaGraphLaunch(replay, stream_), cudaSuccess);
      EXPECT_TRUE(TakeGradients() == expected) << "replay " << run;
    }
    EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

// Of two results in bf16: the RMS of what differs, of that of the first.
double Difference(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  double wrong = 0, all = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    for (size_t i = 0; i < a[n].size() / 2; ++i) {
      const double x = LoadElement(a[n].data(), DType::kBF16, i);
      const double y = LoadElement(b[n].data(), DType::kBF16, i);
      wrong += (x - y) * (x - y);
      all += x * x;
    }
  }
  return std::sqrt(wrong / all);
}

TEST_F(CapiBackwardDeviceTest, NaiveStepsGiveTheSameInEitherOrder) {
  const std::vector<Bytes> expected = Expected();
  int kernels[2];
  for (int32_t algorithm : {ATTND_NAIVE, ATTND_NAIVE_AUTOGRAD}) {
    for (bool deterministic : {false, true}) {
      WithPlan(algorithm, deterministic, [&](AttndPlan* plan) {
        AttndEnqueued enqueued = {};
        ASSERT_EQ(attnd_plan_enqueue(plan, &enqueued), 0) << attnd_last_error();
        EXPECT_LT(Difference(expected, TakeGradients()), 0.02);
        kernels[algorithm == ATTND_NAIVE_AUTOGRAD] = enqueued.kernels;
      });
    }
  }
  EXPECT_LT(kernels[0], kernels[1]);
}

TEST_F(CapiBackwardDeviceTest, TheKernelsForAnyGpuGiveTheSame) {
  const std::vector<Bytes> expected = Expected();
  WithPlan(ATTND_ANY_GPU, /*deterministic=*/false, [&](AttndPlan* plan) {
    ASSERT_EQ(attnd_plan_enqueue(plan, nullptr), 0) << attnd_last_error();
    EXPECT_LT(Difference(expected, TakeGradients()), 0.01);
  });
  std::vector<Bytes> outputs, others;
  for (const auto& p : problems_) outputs.push_back(p->Output());
  RunForward(ATTND_ANY_GPU);
  for (const auto& p : problems_) others.push_back(p->Output());
  EXPECT_LT(Difference(outputs, others), 0.01);
}

}  // namespace
}  // namespace attnd
