// Prints the shapes that Hopper's kernels come in, and why: README.md's table.

#include <cstdio>

#include "kernels/cuda/sm90/config.h"
#include "kernels/cuda/sm90/shape_row.h"

int main() {
  namespace sm90 = attnd::cuda::sm90;
  std::fputs(sm90::kShapesHead, stdout);
  for (const sm90::ForwardShape& shape : sm90::kForwardShapes) {
    std::fputs(sm90::ShapeRow(shape).c_str(), stdout);
  }
  return 0;
}
