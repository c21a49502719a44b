#ifndef ATTND_CLIENT_PLACEMENT_H_
#define ATTND_CLIENT_PLACEMENT_H_

// Which of a call's tensors go by reference, and which by their bytes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "attnd/client.h"
#include "attnd/region.h"
#include "client/region_table.h"
#include "google/protobuf/descriptor.h"

namespace attnd::client {

// Where a tensor lies that goes by reference.
struct RegionPlace {
  std::shared_ptr<Region> region;  // null: it does not
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct Placement {
  // Null: the tensor's bytes travel. `field`: of the request.
  const RegionPlace* Find(int field) const {
    const auto found = places.find(field);
    return found == places.end() ? nullptr : &found->second;
  }
  // The regions that it refers to, of GPUs' memory or of the host's.
  std::vector<std::shared_ptr<Region>> Used(bool on_device) const;
  // Has the bytes travel of what lies in those of the host's, as `reason` says.
  // `request`: the type whose fields they are.
  void SendThoseOnHost(const google::protobuf::Descriptor& request,
                       const std::string& reason);

  absl::btree_map<int, RegionPlace> places;  // by field
  int64_t sent_bytes = 0;  // of the others, inputs and outputs
  // Those in which any tensor lies: a call keeps them until it has ended.
  std::vector<std::shared_ptr<Region>> regions;
  // Report::fallback.
  std::string fallback;
};

// What a call may refer to.
struct RegionRules {
  std::shared_ptr<const RegionMap> regions;  // null: there are none
  TransportKind transport = TransportKind::kAuto;
  // Not empty: why those of host memory are not to be tried.
  std::string refusal;
};

// INVALID_ARGUMENT, naming the tensor: its bytes would have to travel, but lie
// on a device, or `transport` says that none do; FAILED_PRECONDITION: the same,
// because its region is over. Of tensors that are none nothing is said here.
absl::StatusOr<Placement> Place(const ForwardCall& call,
                                const RegionRules& rules);
absl::StatusOr<Placement> Place(const BackwardCall& call,
                                const RegionRules& rules);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_PLACEMENT_H_
