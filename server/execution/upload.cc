#include "server/execution/upload.h"

#include <vector>

namespace attnd::server {
namespace {

// Tensors go to the device in pieces of this size, so that staging them and
// the bus overlap, and that a cancelled request stops soon.
constexpr size_t kUploadPieceBytes = size_t{4} << 20;

// Takes spans of up to kUploadPieceBytes in total off the front of `spans`;
// `index` and `offset` say where the front is.
std::vector<ConstHostSpan> NextPiece(const HostPieces& spans, size_t& index,
                                     size_t& offset) {
  std::vector<ConstHostSpan> piece;
  size_t room = kUploadPieceBytes;
  while (room > 0 && index < spans.size()) {
    const ConstHostSpan part = spans[index].subspan(offset, room);
    if (!part.empty()) piece.push_back(part);
    room -= part.size();
    offset += part.size();
    if (offset == spans[index].size()) {
      ++index;
      offset = 0;
    }
  }
  return piece;
}

}  // namespace

absl::Status UploadPieces(const HostPieces& pieces, const CancelToken& cancel,
                          Stream& stream, std::byte* to) {
  size_t index = 0, offset = 0;
  while (!cancel.cancelled()) {
    const std::vector<ConstHostSpan> piece = NextPiece(pieces, index, offset);
    if (piece.empty()) break;
    if (absl::Status status = stream.Upload(piece, to); !status.ok()) {
      return status;
    }
    for (const ConstHostSpan& span : piece) to += span.size();
  }
  return absl::OkStatus();
}

}  // namespace attnd::server
