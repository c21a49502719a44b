#ifndef ATTND_SERVER_EXECUTION_UPLOAD_H_
#define ATTND_SERVER_EXECUTION_UPLOAD_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "server/work/tensor_source.h"

namespace attnd::server {

// How far a tensor has been uploaded: where its next byte is.
struct UploadPosition {
  size_t piece = 0, offset = 0;
  int64_t bytes = 0;  // before it
};

// Copies a tensor's pieces, one after another, to `to` on the stream's device,
// from `position` on, which moves along; once `cancel` is set it soon stops,
// and what is there is undefined. False: pause() was true, and more is to be
// copied. What has been copied may go once it returns. Errors: the device is
// broken.
absl::StatusOr<bool> UploadPieces(const HostPieces& pieces,
                                  const CancelToken& cancel,
                                  absl::FunctionRef<bool()> pause,
                                  Stream& stream, std::byte* to,
                                  UploadPosition& position);

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_UPLOAD_H_
