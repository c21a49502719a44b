#ifndef ATTND_TESTS_SERVER_POLICY_TESTING_H_
#define ATTND_TESTS_SERVER_POLICY_TESTING_H_

// A policy to which nothing happens but what the test says.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/scheduling/policy.h"

namespace attnd::server {

inline const absl::Time kNow = absl::UnixEpoch();
inline constexpr LaneFilter kAnyLane;
inline constexpr LaneFilter kSmallLane = {.device = 1, .small_only = true};

inline PolicyOptions NoGroups() {
  PolicyOptions options;
  options.max_batch_requests = 1;
  return options;
}

class PolicyTester {
 public:
  explicit PolicyTester(const PolicyOptions& options) : policy(options) {}

  struct Spec {
    std::string client = "client";
    double flops = 1e6;
    Priority priority = Priority::kNormal;
    int64_t head_dim = 64;
    uint64_t devices = ~0;
    absl::Time admitted = kNow;
    absl::Time deadline = absl::InfiniteFuture();
    int64_t bytes = 0;
    double shares = 1;
  };
  uint64_t Add(const Spec& spec) {
    Pending p;
    p.id = ++last_id;
    p.client = spec.client;
    p.shares = spec.shares;
    p.flops = spec.flops;
    p.bytes = spec.bytes;
    p.priority = spec.priority;
    p.key.head_dim = p.key.value_dim = spec.head_dim;
    p.devices = spec.devices;
    p.admitted = spec.admitted;
    p.deadline = spec.deadline;
    specs[p.id] = spec;
    policy.Add(std::move(p));
    return last_id;
  }
  std::vector<uint64_t> Next(const LaneFilter& lane = kAnyLane,
                             absl::Time now = kNow) {
    return policy.Next(lane, now).ids;
  }
  // All that is pending, in the order it runs in.
  std::vector<uint64_t> All() {
    std::vector<uint64_t> all;
    for (auto ids = Next(); !ids.empty(); ids = Next()) {
      all.insert(all.end(), ids.begin(), ids.end());
    }
    return all;
  }

  Policy policy;
  std::map<uint64_t, Spec> specs;
  uint64_t last_id = 0;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_POLICY_TESTING_H_
