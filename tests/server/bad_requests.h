#ifndef ATTND_TESTS_SERVER_BAD_REQUESTS_H_
#define ATTND_TESTS_SERVER_BAD_REQUESTS_H_

// Requests that the server must refuse, each with the code and the field that
// the refusal names. Used on the decoder alone and over real gRPC.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attn/v1/attention.pb.h"
#include "kernels/attention.h"

namespace attnd::server {

struct BadRequest {
  std::string name;
  Op op = Op::kForward;
  std::string bytes;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  // What the status names: a field's path among its BadRequest violations, or
  // else text of its message.
  std::string names;
};

std::vector<BadRequest> BadRequests();

// Small valid requests of random data: batch 2, 3 queries, 5 keys, 4 heads over
// 2, head_dim 8, value_dim 6, f32.
attn::v1::ForwardRequest GoodForward();
attn::v1::BackwardRequest GoodBackward();
// F32, with random elements.
attn::v1::Tensor RandomTensor(const std::vector<int64_t>& shape);

// "" or what `status` fails to say of what `bad` expects.
std::string Mismatch(const BadRequest& bad, const absl::Status& status);

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_BAD_REQUESTS_H_
