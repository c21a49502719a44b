#include "server/execution/upload.h"

#include <vector>

namespace attnd::server {
namespace {

// Tensors go to the device in pieces of this size, so that staging them and
// the bus overlap, and that a cancelled request stops soon.
constexpr size_t kUploadPieceBytes = size_t{4} << 20;

// Takes spans of up to kUploadPieceBytes in total from `position` on, which
// moves along.
std::vector<ConstHostSpan> NextPiece(const HostPieces& spans,
                                     UploadPosition& position) {
  std::vector<ConstHostSpan> piece;
  size_t room = kUploadPieceBytes;
  while (room > 0 && position.piece < spans.size()) {
    const ConstHostSpan span = spans[position.piece];
    const ConstHostSpan part = span.subspan(position.offset, room);
    if (!part.empty()) piece.push_back(part);
    room -= part.size();
    position.offset += part.size();
    if (position.offset == span.size()) {
      ++position.piece;
      position.offset = 0;
    }
  }
  position.bytes += static_cast<int64_t>(kUploadPieceBytes - room);
  return piece;
}

}  // namespace

absl::StatusOr<bool> UploadPieces(const HostPieces& pieces,
                                  const CancelToken& cancel,
                                  absl::FunctionRef<bool()> pause,
                                  Stream& stream, std::byte* to,
                                  UploadPosition& position) {
  while (!cancel.cancelled()) {
    std::byte* const at = to + position.bytes;
    const std::vector<ConstHostSpan> piece = NextPiece(pieces, position);
    if (piece.empty()) break;
    if (absl::Status status = stream.Upload(piece, at); !status.ok()) {
      return status;
    }
    if (position.piece < pieces.size() && pause()) return false;
  }
  return true;
}

}  // namespace attnd::server
