#ifndef ATTND_CLIENT_ATTNCTL_PLACED_REQUEST_H_
#define ATTND_CLIENT_ATTNCTL_PLACED_REQUEST_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "client/attnctl/commands.h"
#include "client/region_memory.h"

namespace attnd::client {

// A request whose call has its tensors in a region.
class PlacedRequest {
 public:
  // Leases a region, copies there what the tensors have, has `request.call`
  // point to it, and tells `client` of it. Blocks for `timeout` at most.
  static absl::StatusOr<std::unique_ptr<PlacedRequest>> Place(
      const TransportFlags& flags, absl::Duration timeout, Request& request,
      Client& client);

  // The results, to the request's own memory.
  absl::Status CopyOut() const;

 private:
  struct Result {
    const char* placed = nullptr;
    void* to = nullptr;
    int64_t bytes = 0;
  };

  template <typename Call>
  absl::Status Move(Call& call);

  std::unique_ptr<RegionMemory> memory_;
  std::vector<Result> results_;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_PLACED_REQUEST_H_
