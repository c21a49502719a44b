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
  explicit Copy(const GroupImage& image)
      : size_(image.bytes().size()), lines_(size_ / sizeof(Line) + 1) {
    std::copy(image.bytes().begin(), image.bytes().end(), base());
  }
  std::byte* base() { return lines_[0].bytes; }
  std::vector<std::byte> Bytes() { return {base(), base() + size_}; }

 private:
  size_t size_;
  std::vector<Line> lines_;
};

TEST(GroupImageTest, AReboundProblemIsTheSameProblem) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomProblem problem(seed, ForwardOnly());
    const auto run = [](const ForwardArgs& args) {
      GroupImage image({&args, 1});
      Copy copy(image);
      const auto rebound = image.Rebind(copy.base());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(rebound[0].problem.q.data) % 16,
                reinterpret_cast<uintptr_t>(args.problem.q.data) % 16);
      const absl::Status status =
          reference::Forward(rebound[0], Algorithm::kFlashAttention2);
      return status.ok() ? image.TakeOutputs(copy.Bytes()) : status;
    };
    ASSERT_TRUE(CheckForward(problem, run));
  }
}

TEST(GroupImageTest, AWriteOutsideOfTheOutputsIsFound) {
  ProblemOptions options = ForwardOnly();
  options.empty_sizes = options.bias = false;
  const RandomProblem problem(1, options);
  auto out = problem.MakeForwardOutputs();
  const ForwardArgs args = problem.Forward(out);
  GroupImage image({&args, 1});
  Copy copy(image);
  const ForwardArgs rebound = image.Rebind(copy.base())[0];
  EXPECT_TRUE(image.TakeOutputs(copy.Bytes()).ok());
  auto* before = static_cast<std::byte*>(rebound.o.data) - 1;
  *before = std::byte{0};
  EXPECT_EQ(image.TakeOutputs(copy.Bytes()).code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace attnd::testing
