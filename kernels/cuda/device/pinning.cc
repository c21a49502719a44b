#include "kernels/cuda/device/pinning.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/status.h"

namespace attnd::cuda {
namespace {

// How much of the `bytes` from `host` on lies in the piece where they begin.
size_t BytesInPiece(const std::byte* host, size_t bytes) {
  constexpr auto kPiece = static_cast<uintptr_t>(kPinnedPieceBytes);
  const size_t left = kPiece - reinterpret_cast<uintptr_t>(host) % kPiece;
  return std::min(bytes, left);
}

// A copy for each piece. `host` is the one of `from` and `to` that has pieces.
absl::Status CopyPieces(std::byte* to, const std::byte* from,
                        const std::byte* host, size_t bytes,
                        cudaMemcpyKind kind, cudaStream_t stream) {
  for (size_t done = 0; done < bytes;) {
    const size_t piece = BytesInPiece(host + done, bytes - done);
    absl::Status status =
        ToStatus(cudaMemcpyAsync(to + done, from + done, piece, kind, stream),
                 kind == cudaMemcpyHostToDevice ? "upload" : "download");
    if (!status.ok()) return Broken(std::move(status));
    done += piece;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PinMemory(int device, HostSpan memory) {
  if (absl::Status status = UseDevice(device); !status.ok()) {
    return Broken(std::move(status));
  }
  return ToStatus(
      cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable),
      absl::StrCat("pinning ", memory.size(), " bytes"));
}

void UnpinMemory(int device, HostSpan memory) {
  UseDevice(device).IgnoreError();
  ToStatus(cudaHostUnregister(memory.data()), "unpinning").IgnoreError();
}

absl::Status CopyToDevice(ConstHostSpan from, std::byte* to,
                          cudaStream_t stream) {
  return CopyPieces(to, from.data(), from.data(), from.size(),
                    cudaMemcpyHostToDevice, stream);
}

absl::Status CopyToHost(const std::byte* from, HostSpan to,
                        cudaStream_t stream) {
  return CopyPieces(to.data(), from, to.data(), to.size(),
                    cudaMemcpyDeviceToHost, stream);
}

}  // namespace attnd::cuda
