#ifndef ATTND_TESTS_BENCH_REGION_CALLS_H_
#define ATTND_TESTS_BENCH_REGION_CALLS_H_

// Forwards whose tensors lie in a region.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attnd/client.h"
#include "attnd/region.h"

namespace attnd::bench {

// Of one sequence; values are as wide as queries.
struct ForwardShape {
  client::DType dtype = client::DType::kF32;
  int64_t q_len = 0, kv_len = 0, heads = 0, dim = 0;

  int64_t q_bytes() const;   // of q, and of o
  int64_t kv_bytes() const;  // of k, and of v
  // All four, each with room to be aligned.
  int64_t region_bytes() const;
};

// Finite values of `dtype`, none of which is 0.
std::vector<std::byte> RandomValues(client::DType dtype, int64_t bytes,
                                    uint64_t seed);

// A forward without LSE, of tensors in `region`, which nothing else may use.
// Ends the process if that has no room. Fill them before the first call.
client::ForwardCall PlaceForward(client::Region& region,
                                 const ForwardShape& shape);

// The same, in host memory, with random inputs.
client::ForwardCall PlaceRandomForward(client::Region& region,
                                       const ForwardShape& shape,
                                       uint64_t seed = 1);

// Calls by region only. Ends the process on an error.
client::Report CallByRegion(client::Client& client,
                            const client::ForwardCall& call);

// A client of one connection.
std::unique_ptr<client::Client> NewClient(
    const std::string& target, absl::Duration busy_poll = absl::ZeroDuration());

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_REGION_CALLS_H_
