// How baselines are enqueued slice by slice: every launch once, in order.

#include "kernels/cuda/baselines/baseline_rest.h"

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace attnd::cuda {
namespace {

constexpr Gpu kGpu = {.multiprocessors = 1};

// Problems of launches that take so many microseconds each. Remembers which
// were made: of which problem, and which of its launches.
struct FakeGroup {
  std::vector<std::vector<double>> problems;
  std::vector<std::pair<size_t, int>>* made;
  absl::Status error;

  size_t size() const { return problems.size(); }
  double Micros(size_t n) const {
    double all = 0;
    for (double micros : problems[n]) all += micros;
    return all;
  }
  absl::Status Run(size_t n, LaunchPart& part) {
    if (!error.ok() && n > 0) return error;
    part.end = part.first;
    while (part.end < static_cast<int>(problems[n].size()) && part.micros > 0) {
      part.micros -= problems[n][part.end];
      made->push_back({n, part.end++});
    }
    part.is_last = part.end == static_cast<int>(problems[n].size());
    return absl::OkStatus();
  }
};

TEST(BaselineRestTest, EveryLaunchIsMadeOnceInOrder) {
  std::vector<std::pair<size_t, int>> made;
  const FakeGroup group{{{5, 5, 5, 1}, {}, {30}, {1, 1, 9, 9}}, &made, {}};
  auto rest = BeginBaseline(group, kGpu, {.time = absl::Microseconds(10)});
  ASSERT_TRUE(rest.ok()) << rest.status();
  ASSERT_NE(*rest, nullptr);
  std::vector<size_t> ends = {made.size()};
  double share = 0;
  while ((*rest)->share() < 1) {
    EXPECT_GT((*rest)->share(), share);
    share = (*rest)->share();
    ASSERT_TRUE((*rest)->EnqueueSlice().ok());
    ends.push_back(made.size());
  }
  EXPECT_EQ(ends, (std::vector<size_t>{2, 5, 8, 9}));
  EXPECT_EQ(made, (std::vector<std::pair<size_t, int>>{{0, 0},
                                                       {0, 1},
                                                       {0, 2},
                                                       {0, 3},
                                                       {2, 0},
                                                       {3, 0},
                                                       {3, 1},
                                                       {3, 2},
                                                       {3, 3}}));
}

TEST(BaselineRestTest, ASmallGroupIsNotCut) {
  std::vector<std::pair<size_t, int>> made;
  const FakeGroup group{{{5, 5}, {4}}, &made, {}};
  const auto rest =
      BeginBaseline(group, kGpu, {.time = absl::Microseconds(10)});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(*rest, nullptr);
  EXPECT_EQ(made.size(), 3);
}

// Memory was there for all of it: what is missing later is a fault.
TEST(BaselineRestTest, NoMemoryLaterIsInternal) {
  std::vector<std::pair<size_t, int>> made;
  const FakeGroup group{
      {{20}, {20}}, &made, absl::ResourceExhaustedError("no memory")};
  auto rest = BeginBaseline(group, kGpu, {.time = absl::Microseconds(10)});
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ((*rest)->EnqueueSlice().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace attnd::cuda
