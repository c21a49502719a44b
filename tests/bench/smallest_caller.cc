#include "tests/bench/smallest_caller.h"

#include <cmath>

#include "tests/bench/require.h"

namespace attnd::bench {

SmallestCaller::SmallestCaller(const std::string& target,
                               const client::ClientOptions& options)
    : client_(Get(client::Client::Create(target, options))) {
  call_.q = {client::DType::kF32, {1, 1, 1, kDim}, q_};
  call_.k = {client::DType::kF32, {1, 1, 1, kDim}, k_};
  call_.v = {client::DType::kF32, {1, 1, 1, kDim}, v_};
  call_.o = {client::DType::kF32, {1, 1, 1, kDim}, o_};
  call_.lse = {client::DType::kF32, {1, 1, 1}, &lse_};
  for (int d = 0; d < kDim; ++d) k_[d] = 0.5f, q_[d] = v_[d] = float(d);
}

absl::Status SmallestCaller::Call(const client::CallOptions& options) {
  o_[kDim - 1] = NAN;
  const auto report = client_->Forward(call_, options);
  if (!report.ok()) return report.status();
  if (o_[kDim - 1] == v_[kDim - 1]) return absl::OkStatus();
  return absl::InternalError("a forward of one key is not its value");
}

}  // namespace attnd::bench
