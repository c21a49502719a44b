#ifndef ATTND_REGION_H_
#define ATTND_REGION_H_

// Memory that a server on this host shares, so that tensors are handed over
// where they lie:
//
//   auto region = attnd::client::Region::Lease("/run/attnd/region", 64 << 20);
//   client->AddRegion(*region);
//   attnd::client::Tensor q = *(*region)->Allocate(DType::kBF16, shape);
//   ... fill q.data ...
//   call.q = {q.dtype, q.shape, q.data};
//   client->Forward(call, {});
//
// Calls' tensors that lie in a region go by reference: inputs are read, and
// results written, where they are. device_region.h has regions of a GPU's
// memory. Nothing of Protocol Buffers, gRPC or CUDA is in this header.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/client.h"

namespace attnd::client {

// A leased region. It ends when the last reference to it goes, or when the
// server does, after which its memory stays this process' own. Thread-safe.
//
// The server may read and write a call's tensors in a region until the call
// has succeeded, or failed in the server; after a call that ended here, by its
// deadline, by Cancel or because the connection broke, for as long as its
// kernels run. What is written into an input meanwhile makes the result
// undefined, and nothing else.
class Region {
 public:
  virtual ~Region() = default;

  // Leases `bytes` > 0 of host memory, zero at first, from the server that
  // listens at the path `socket` (attnd --region_socket). Blocks for `timeout`
  // at most. UNAVAILABLE: nobody listens there; PERMISSION_DENIED: this process
  // may not connect; DEADLINE_EXCEEDED; else what the server says, such as
  // RESOURCE_EXHAUSTED with RetryInfo when it has no such region now.
  static absl::StatusOr<std::shared_ptr<Region>> Lease(
      const std::string& socket, int64_t bytes,
      absl::Duration timeout = absl::Seconds(5));
  // As Lease, and where that fails memory of this process' own, whose tensors
  // travel like any others; calls with them say why in Report::fallback. So the
  // same program runs beside a server and far from it. RESOURCE_EXHAUSTED: no
  // memory at all.
  static absl::StatusOr<std::shared_ptr<Region>> LeaseOrAllocate(
      const std::string& socket, int64_t bytes,
      absl::Duration timeout = absl::Seconds(5));

  // The whole region: an address of this process, or of the GPU. At least as
  // many bytes as were asked for.
  virtual void* data() const = 0;
  virtual int64_t bytes() const = 0;
  // Whether it is a GPU's memory, which the host cannot touch.
  virtual bool on_device() const = 0;
  // OK while it is leased. Otherwise why not: it never was (LeaseOrAllocate),
  // or the server has ended it.
  virtual absl::Status status() const = 0;
  // How servers know it: 16 bytes, secret; empty where it was never leased. And
  // which server does (ServerInfo::server_instance_id).
  virtual const std::string& id() const = 0;
  virtual const std::string& server_instance_id() const = 0;

  // Room for a tensor, aligned to 256 bytes, its contents as they are, until
  // Free. INVALID_ARGUMENT: no such shape; RESOURCE_EXHAUSTED: no such room is
  // left. Tensors may also be placed by hand, at multiples of 256 bytes, where
  // nothing is allocated.
  virtual absl::StatusOr<Tensor> Allocate(
      DType dtype, const std::vector<int64_t>& shape) = 0;
  // What Allocate gave; nothing else.
  virtual void Free(const Tensor& tensor) = 0;
};

}  // namespace attnd::client

#endif  // ATTND_REGION_H_
