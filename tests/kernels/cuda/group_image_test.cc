#include "tests/kernels/cuda/group_image.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/accuracy.h"
#include "tests/kernels/random_problem.h"

namespace attnd::testing {
namespace {

struct alignas(256) Line {
  std::byte bytes[256];
};

// A copy of the image where another device would have it.
class Copy {
 public:
  explicit Copy(const std::vector<std::byte>& bytes)
      : size_(bytes.size()), lines_(size_ / sizeof(Line) + 1) {
    std::copy(bytes.begin(), bytes.end(), base());
  }
  std::byte* base() { return lines_[0].bytes; }
  std::vector<std::byte> Bytes() { return {base(), base() + size_}; }

 private:
  size_t size_;
  std::vector<Line> lines_;
};

bool AreAlike(const void* a, const void* b) {
  return reinterpret_cast<uintptr_t>(a) % 16 ==
         reinterpret_cast<uintptr_t>(b) % 16;
}

TEST(GroupImageTest, AReboundProblemIsTheSameProblem) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomProblem problem(seed, ForwardOnly());
    const auto run = [](const ForwardArgs& args) {
      GroupImage<ForwardArgs> image({&args, 1});
      Copy copy(image.bytes());
      const auto rebound = image.Rebind(copy.base());
      EXPECT_TRUE(AreAlike(rebound[0].problem.q.data, args.problem.q.data));
      const absl::Status status =
          reference::Forward(rebound[0], Algorithm::kFlashAttention2);
      return status.ok() ? image.TakeOutputs(copy.Bytes()) : status;
    };
    ASSERT_TRUE(CheckForward(problem, run));
  }
}

TEST(GroupImageTest, SoIsAReboundProblemOfBackward) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomProblem problem(seed);
    const auto run = [](const BackwardArgs& args) {
      GroupImage<BackwardArgs> image({&args, 1});
      Copy copy(image.bytes());
      const auto rebound = image.Rebind(copy.base());
      EXPECT_TRUE(AreAlike(rebound[0].d_o.data, args.d_o.data));
      const absl::Status status =
          reference::Backward(rebound[0], Algorithm::kFlashAttention2);
      return status.ok() ? image.TakeOutputs(copy.Bytes()) : status;
    };
    ASSERT_TRUE(CheckBackward(problem, run));
  }
}

TEST(GroupImageTest, AWriteOutsideOfTheOutputsIsFound) {
  ProblemOptions options = ForwardOnly();
  options.empty_sizes = options.bias = false;
  const RandomProblem problem(1, options);
  auto out = problem.MakeForwardOutputs();
  const ForwardArgs args = problem.Forward(out);
  GroupImage<ForwardArgs> image({&args, 1});
  Copy copy(image.bytes());
  const ForwardArgs rebound = image.Rebind(copy.base())[0];
  EXPECT_TRUE(image.TakeOutputs(copy.Bytes()).ok());
  auto* before = static_cast<std::byte*>(rebound.o.data) - 1;
  *before = std::byte{0};
  EXPECT_EQ(image.TakeOutputs(copy.Bytes()).code(),
            absl::StatusCode::kInternal);
}

// To each input of backward, one after another.
TEST(GroupImageTest, AWriteToAnInputIsFound) {
  ProblemOptions options;
  options.empty_sizes = options.bias = false;
  const RandomProblem problem(2, options);
  auto out = problem.MakeBackwardOutputs();
  const BackwardArgs args = problem.Backward(out);
  GroupImage<BackwardArgs> image({&args, 1});
  Copy copy(image.bytes());
  const BackwardArgs rebound = image.Rebind(copy.base())[0];
  const KvSegment& segment = rebound.problem.kv.front();
  int inputs = 0;
  for (const void* input : {rebound.problem.q.data, segment.k.data,
                            segment.v.data, rebound.d_o.data, rebound.o.data,
                            static_cast<const void*>(rebound.lse.data),
                            static_cast<const void*>(rebound.delta.data),
                            static_cast<const void*>(rebound.d_lse.data)}) {
    if (input == nullptr) continue;
    ASSERT_TRUE(image.TakeOutputs(copy.Bytes()).ok());
    std::byte* byte =
        copy.base() + (static_cast<const std::byte*>(input) - copy.base());
    *byte ^= std::byte{1};
    EXPECT_EQ(image.TakeOutputs(copy.Bytes()).code(),
              absl::StatusCode::kInternal);
    *byte ^= std::byte{1};
    ++inputs;
  }
  EXPECT_GE(inputs, 6);  // O or delta, and LSE
}

}  // namespace
}  // namespace attnd::testing
