#ifndef ATTND_TESTS_BENCH_SMALLEST_CALLER_H_
#define ATTND_TESTS_BENCH_SMALLEST_CALLER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "attnd/client.h"

namespace attnd::bench {

// Makes the smallest forward there is, one query and one key of head_dim 64, by
// the client library. Not thread-safe.
class SmallestCaller {
 public:
  // Ends the program if there can be no such client.
  explicit SmallestCaller(const std::string& target,
                          const client::ClientOptions& options = {});

  // The call's status; INTERNAL: the answer is neither V, as it must be, nor Q,
  // which is the same here and what a device that only copies answers.
  absl::Status Call(const client::CallOptions& options = {});

 private:
  static constexpr int kDim = 64;

  std::unique_ptr<client::Client> client_;
  float q_[kDim], k_[kDim], v_[kDim], o_[kDim], lse_;
  client::ForwardCall call_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SMALLEST_CALLER_H_
