#ifndef ATTND_KERNELS_CUDA_SM90_SHAPE_ROW_H_
#define ATTND_KERNELS_CUDA_SM90_SHAPE_ROW_H_

// Formats the shapes of config.h as the table that README.md has, which a test
// compares.

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/sm90/config.h"

namespace attnd::cuda::sm90 {

inline constexpr char kShapesHead[] =
    "| D | kv_len | rows × columns | consumers | K and V in stages | Q in "
    "buffers | O in panels | P waits for O | registers of producers, consumers "
    "| why, and not otherwise |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n";

inline std::string ShapeRow(const ForwardShape& shape) {
  std::string dim = absl::StrCat(shape.dim);
  if (shape.value_dim != shape.dim) {
    absl::StrAppend(&dim, ", value_dim up to ", shape.value_dim);
  }
  const std::string kv_len = shape.from > 0 ? absl::StrCat("from ", shape.from)
                             : shape.to != kAnyLength
                                 ? absl::StrCat("below ", shape.to)
                                 : "any";
  return absl::StrCat(
      "| ", dim, " | ", kv_len, " | ", kConsumerRows * shape.consumers, " × ",
      shape.cols, " | ", shape.consumers, " | ", shape.stages, " | ",
      shape.q_buffers, " | ", shape.o_panels, " | ",
      shape.awaits_o ? "yes" : "no", " | ", shape.producer_registers, ", ",
      shape.consumer_registers, " | ", shape.why, " |\n");
}

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_SHAPE_ROW_H_
