#ifndef ATTND_SERVER_REGION_SLAB_H_
#define ATTND_SERVER_REGION_SLAB_H_

// Memory of the server that one client maps: a file in memory of its own.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "kernels/backend.h"

namespace attnd::server {

// Made step by step, so that whoever makes one while others are served can
// pause in between:
//
//   slab = Slab::Create(spec)
//   slab->Fill(offset, bytes)     until it is full
//   slab->PinPiece(piece)         those that are full
//
// Fill and PinPiece are thread-safe where they are not of the same bytes.
//
// Its size is sealed: nobody who has its descriptor can cut or grow it, so it
// can be read and written without a fault. Holes that somebody punches read as
// zeros. Whoever has its descriptor or has mapped it keeps that for ever, which
// is why a slab serves one client and no other.
class Slab {
 public:
  struct Spec {
    int64_t bytes = 0;   // > 0, whole pages
    int numa_node = -1;  // whose memory is preferred; -1: any
    // One of each kind of device; they outlive the slab.
    std::vector<Backend*> pinners;
  };

  // Reserves addresses, and no memory yet. RESOURCE_EXHAUSTED: the system has
  // no descriptor or addresses left.
  static absl::StatusOr<std::unique_ptr<Slab>> Create(Spec spec);
  // Retires it.
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // Takes memory for `bytes` from `offset` on, both whole pages, and zeroes it.
  // RESOURCE_EXHAUSTED: there is none.
  absl::Status Fill(int64_t offset, int64_t bytes);

  // Pieces are what is pinned at once, kPinnedPieceBytes but for the last.
  int pieces() const { return static_cast<int>(pinned_.size()); }
  int64_t PieceOffset(int piece) const { return piece * kPinnedPieceBytes; }
  int64_t PieceBytes(int piece) const;
  // Once for each piece, after it has been filled. RESOURCE_EXHAUSTED: it
  // cannot be pinned, and no device keeps it so.
  absl::Status PinPiece(int piece);

  // Its end, once nothing uses it any more. Step by step, too, as devices may
  // keep others waiting while they unpin a piece:
  //
  //   Empty()      whoever still maps it sees zeros, and what they write from
  //                then on is their own
  //   UnpinSome()  the next piece that is pinned, whose memory goes back to the
  //                system; false: there was none
  //   Retire()     what is left of both, and lets go of it
  void Empty();
  bool UnpinSome();
  void Retire();

  // At a multiple of kPinnedPieceBytes; empty once it is retired.
  HostSpan memory() const { return memory_; }
  int64_t bytes() const { return spec_.bytes; }
  const Spec& spec() const { return spec_; }
  int descriptor() const { return file_.get(); }

 private:
  explicit Slab(Spec spec);
  absl::Status Open();
  absl::Status Map();
  HostSpan Piece(int piece) const;

  const Spec spec_;
  Descriptor file_;
  HostSpan memory_;
  std::vector<char> pinned_;  // by piece; not bool, whose elements share bytes
  int unpinned_ = 0;          // pieces that are over, from the first on
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_SLAB_H_
