#ifndef ATTND_SERVER_OUTPUT_POOL_H_
#define ATTND_SERVER_OUTPUT_POOL_H_

// Host memory that results are sent from. A buffer lives until the transport
// drops it, which can be after the server is gone: buffers keep their pool.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/backend.h"
#include "server/account.h"

namespace attnd::server {

class OutputPool;

// Move-only memory from a pool, with the charge it was admitted under.
class OutputBuffer {
 public:
  OutputBuffer() = default;
  OutputBuffer(OutputBuffer&& other) noexcept { *this = std::move(other); }
  OutputBuffer& operator=(OutputBuffer&& other) noexcept;
  ~OutputBuffer() { Reset(); }

  HostSpan span() const { return {data_, static_cast<size_t>(bytes_)}; }
  explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class OutputPool;
  void Reset();

  std::shared_ptr<OutputPool> pool_;
  std::shared_ptr<Charge> charge_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;     // asked for
  int64_t capacity_ = 0;  // size class
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_OUTPUT_POOL_H_
