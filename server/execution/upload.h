#ifndef ATTND_SERVER_EXECUTION_UPLOAD_H_
#define ATTND_SERVER_EXECUTION_UPLOAD_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/backend.h"
#include "server/work/tensor_source.h"

namespace attnd::server {

// Copies a tensor's pieces, one after another, to `to` on the stream's device;
// once `cancel` is set it soon stops, and what is there is undefined. The
// pieces may go once it returns. Errors: the device is broken.
absl::Status UploadPieces(const HostPieces& pieces, const CancelToken& cancel,
                          Stream& stream, std::byte* to);

}  // namespace attnd::server

#endif  // ATTND_SERVER_EXECUTION_UPLOAD_H_
