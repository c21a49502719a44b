#ifndef ATTND_TESTS_KERNELS_CUDA_MEMORY_OWNER_H_
#define ATTND_TESTS_KERNELS_CUDA_MEMORY_OWNER_H_

// A process with memory on a GPU, which it exports, fills, reads, and scribbles
// over, as it is told. It is this program, started anew: its main must begin
// with RunAsMemoryOwner.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/descriptor.h"

namespace attnd::testing {

// The exit status, if this process was started to own memory.
std::optional<int> RunAsMemoryOwner(int argc, char** argv);

// For one thread. An error says what the other process could not do, or that it
// has gone.
class MemoryOwner {
 public:
  // `environment`: "NAME=VALUE", in addition to this process'.
  explicit MemoryOwner(const std::vector<std::string>& environment = {});
  // Ends the process.
  ~MemoryOwner();
  MemoryOwner(const MemoryOwner&) = delete;
  MemoryOwner& operator=(const MemoryOwner&) = delete;

  // Gives up the memory it had, and allocates and exports at least `bytes`, a
  // multiple of the granularity: allocated() says how many.
  absl::StatusOr<Descriptor> Allocate(int64_t bytes, int device = 0);
  int64_t allocated() const { return allocated_; }
  absl::Status Write(absl::Span<const std::byte> from);  // to its first bytes
  absl::Status Read(absl::Span<std::byte> to);           // from its first bytes
  // Writes all kinds of bits to any places of the memory until it is told to
  // stop; returns how often it has written.
  absl::Status Scribble();
  absl::StatusOr<int64_t> StopScribbling();
  // Unmaps the memory, and gives it up.
  absl::Status GiveUp();
  // Ends it, whatever it is doing. Returns once it has gone.
  void Kill();

 private:
  struct Answer {
    std::string text;
    Descriptor descriptor;
  };
  absl::StatusOr<Answer> Ask(const std::string& what, int descriptor = -1);

  pid_t process_ = -1;
  Descriptor socket_;
  int64_t allocated_ = 0;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_CUDA_MEMORY_OWNER_H_
