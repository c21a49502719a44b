#ifndef ATTND_CLIENT_ATTNLOAD_SHAPE_H_
#define ATTND_CLIENT_ATTNLOAD_SHAPE_H_

// One kind of request in the mix that a load consists of.

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attnd/client.h"

namespace attnd::attnload {

struct Shape {
  std::string name;  // as it was written, without the weight
  double weight = 1;
  bool backward = false;
  client::DType dtype = client::DType::kF32;
  int64_t batch = 1;
  int64_t q_len = 512, kv_len = 512;
  int64_t q_heads = 8, kv_heads = 8;
  int64_t head_dim = 64, value_dim = 64;
  client::Mask mask;
  client::Algorithm algorithm = client::Algorithm::kAuto;
  bool deterministic = false;
  client::Plan plan = client::Plan::kAuto;

  int64_t q_elements() const { return batch * q_len * q_heads * head_dim; }
  int64_t k_elements() const { return batch * kv_len * kv_heads * head_dim; }
  int64_t v_elements() const { return batch * kv_len * kv_heads * value_dim; }
  int64_t o_elements() const { return batch * q_len * q_heads * value_dim; }
  int64_t rows() const { return batch * q_heads * q_len; }

  // Tensor bytes over the wire.
  int64_t input_bytes() const;
  int64_t output_bytes() const;
};

// "one_device", as shapes and results call a plan; kAuto: "unknown", as it is
// in a report.
const char* Name(client::Plan plan);

// Parts joined by ':', in any order, each at most once; what is left out is as
// above:
//   forward | backward     f32 | f16 | bf16      b4       batch
//   s512 or s1/512         q_len and kv_len      h8 or h8/2   query, kv heads
//   d128 or d192/128       head_dim, value_dim   causal   det (deterministic)
//   w256/0                 window left, right; -1 is unlimited
//   naive | online | fa1 | fa2
//   one_device | heads | gather | ring | striped | zigzag | kv
// and "@0.7" last, the weight. INVALID_ARGUMENT says which part is wrong. Says
// nothing of the server's limits, except that heads must divide.
absl::StatusOr<Shape> ParseShape(absl::string_view text);

// One shape a line; empty lines and what follows '#' are ignored.
absl::StatusOr<std::vector<Shape>> ParseMix(absl::string_view text);
// The same of all that `from` gives, at most 1 MiB: a pipe's end may not come.
absl::StatusOr<std::vector<Shape>> ReadMix(std::istream& from);

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_SHAPE_H_
