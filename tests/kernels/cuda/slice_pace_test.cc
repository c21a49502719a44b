// When the next slice of a group is enqueued.

#include "kernels/cuda/slice_pace.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace attnd::cuda {
namespace {

absl::Time At(int millis) {
  return absl::UnixEpoch() + absl::Milliseconds(millis);
}

TEST(SlicePaceTest, BeginsWithTheEstimate) {
  SlicePace pace(absl::Milliseconds(10));
  pace.Resume(At(100));
  EXPECT_EQ(pace.half_over(), At(105));
}

TEST(SlicePaceTest, GoesByTheSliceBefore) {
  SlicePace pace(absl::Milliseconds(10));
  pace.Resume(At(0));
  pace.End(At(10));
  pace.End(At(24));
  EXPECT_EQ(pace.half_over(), At(31));
  pace.End(At(30));
  EXPECT_EQ(pace.half_over(), At(33));
}

// Its stream had other work first: the next step of a ring is enqueued while
// the one before runs. Were that wait counted, the slice after the next would
// be enqueued when the device has nothing left to do.
TEST(SlicePaceTest, DoesNotCountWhatTheDeviceHadToDoBefore) {
  SlicePace pace(absl::Milliseconds(10));
  pace.Resume(At(0));
  pace.End(At(22));
  EXPECT_EQ(pace.half_over(), At(27));
  pace.End(At(31));
  EXPECT_EQ(pace.half_over(), At(31) + absl::Milliseconds(4.5));
}

TEST(SlicePaceTest, ASliceTakesNoLongerThanIsSeen) {
  SlicePace pace(absl::Milliseconds(10));
  pace.Resume(At(0));
  pace.End(At(4));
  EXPECT_EQ(pace.half_over(), At(6));
}

// After a pause the slice that runs may be nearly over.
TEST(SlicePaceTest, KnowsNothingAfterAPauseButTheLastTime) {
  SlicePace pace(absl::Milliseconds(10));
  pace.Resume(At(0));
  pace.End(At(10));
  pace.End(At(18));
  pace.Resume(At(100));
  EXPECT_EQ(pace.half_over(), At(104));
  pace.End(At(150));
  EXPECT_EQ(pace.half_over(), At(154));
}

}  // namespace
}  // namespace attnd::cuda
