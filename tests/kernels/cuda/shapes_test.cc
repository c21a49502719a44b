// The table of Hopper's kernels is what they are built as.

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cuda/sm90/config.h"
#include "kernels/cuda/sm90/shape_row.h"

namespace attnd {
namespace {

using cuda::sm90::ForwardShape;
using cuda::sm90::kForwardShapes;

TEST(HopperShapesTest, StandInTheReadme) {
  std::ifstream file(ATTND_SOURCE_DIR "/kernels/cuda/sm90/README.md");
  std::stringstream readme;
  readme << file.rdbuf();
  std::string table = cuda::sm90::kShapesHead;
  for (const ForwardShape& shape : kForwardShapes) {
    table += cuda::sm90::ShapeRow(shape);
  }
  EXPECT_NE(readme.str().find(table), std::string::npos)
      << "`hopper_shapes` prints what README.md is to have:\n"
      << table;
}

// At most two for a problem's dims, which take every length between them.
TEST(HopperShapesTest, EveryLengthHasOne) {
  for (const ForwardShape& shape : kForwardShapes) {
    int taking[3] = {}, shapes = 0;
    for (const ForwardShape& other : kForwardShapes) {
      if (other.dim != shape.dim || other.value_dim != shape.value_dim) {
        continue;
      }
      ++shapes;
      taking[0] += other.Takes(0);
      taking[1] += other.Takes(cuda::sm90::kLong);
      taking[2] += other.Takes(int64_t{1} << 40);
    }
    EXPECT_LE(shapes, 2) << shape.dim;
    for (int count : taking) EXPECT_EQ(count, 1) << shape.dim;
  }
}

}  // namespace
}  // namespace attnd
