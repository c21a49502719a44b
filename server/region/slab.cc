#include "server/region/slab.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

// Of Linux 6.3 and 5.14, and so not in every C library that we build with.
constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL
constexpr int kPopulateWrite = 23;        // MADV_POPULATE_WRITE

absl::Status NoMemory(absl::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": ", std::strerror(errno)));
}

Descriptor NewFile() {
  constexpr char kName[] = "attnd region";  // in /proc, and nowhere else
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor file(memfd_create(kName, kFlags | kNoExecSeal));
  if (!file.valid() && errno == EINVAL) {
    file = Descriptor(memfd_create(kName, kFlags));
  }
  return file;
}

// Pages of `memory` that do not exist yet come from `node`'s memory, as long as
// it has any. Without it they come from wherever they are made.
void PreferNode(HostSpan memory, int node) {
  constexpr int kWordBits = sizeof(unsigned long) * CHAR_BIT;
  constexpr int kMostNodes = 1024;  // as Linux
  if (node < 0 || node >= kMostNodes) return;
  unsigned long nodes[kMostNodes / kWordBits] = {};
  nodes[node / kWordBits] = 1ul << node % kWordBits;
  // The system reads one bit less than it is told.
  syscall(SYS_mbind, memory.data(), memory.size(), MPOL_PREFERRED, nodes,
          kMostNodes + 1, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Slab>> Slab::Create(Spec spec) {
  std::unique_ptr<Slab> slab(new Slab(std::move(spec)));
  absl::Status status = slab->Open();
  if (status.ok()) status = slab->Map();
  if (!status.ok()) return status;
  return slab;
}

Slab::Slab(Spec spec)
    : spec_(std::move(spec)),
      pinned_((spec_.bytes + kPinnedPieceBytes - 1) / kPinnedPieceBytes) {}

Slab::~Slab() { Retire(); }

absl::Status Slab::Open() {
  file_ = NewFile();
  if (!file_.valid()) return NoMemory("a file in memory");
  if (ftruncate(file_.get(), spec_.bytes) != 0) {
    return NoMemory(absl::StrCat("a file of ", spec_.bytes, " bytes"));
  }
  if (fcntl(file_.get(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return NoMemory("sealing a file");
  }
  return absl::OkStatus();
}

absl::Status Slab::Map() {
  const auto bytes = static_cast<size_t>(spec_.bytes);
  constexpr auto kAlignment = static_cast<size_t>(kPinnedPieceBytes);
  // More than is needed, of which what lies before and after goes again.
  void* const reserved =
      mmap(nullptr, bytes + kAlignment, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return NoMemory("addresses");
  auto* const first = static_cast<std::byte*>(reserved);
  const size_t before = -reinterpret_cast<uintptr_t>(first) % kAlignment;
  if (before > 0) munmap(first, before);
  if (before < kAlignment) {
    munmap(first + before + bytes, kAlignment - before);
  }
  std::byte* const start = first + before;
  if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           file_.get(), 0) == MAP_FAILED) {
    absl::Status status = NoMemory("mapping a file");
    munmap(start, bytes);
    return status;
  }
  memory_ = HostSpan(start, bytes);
  // A child would map it as well, and keep its pages.
  madvise(start, bytes, MADV_DONTFORK);
  // Where the system has no huge pages for files in memory, nothing changes.
  madvise(start, bytes, MADV_HUGEPAGE);
  PreferNode(memory_, spec_.numa_node);
  return absl::OkStatus();
}

absl::Status Slab::Fill(int64_t offset, int64_t bytes) {
  int error = 0;
  do {
    error = madvise(memory_.data() + offset, bytes, kPopulateWrite) == 0
                ? 0
                : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error == EINVAL) {
    // Of an older system: the pages are made without being mapped, which the
    // first who touches them does. Touching them here might fault.
    do {
      error = fallocate(file_.get(), 0, offset, bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
  }
  if (error == 0) return absl::OkStatus();
  errno = error;
  return NoMemory(absl::StrCat("memory of ", bytes, " bytes"));
}

int64_t Slab::PieceBytes(int piece) const {
  return std::min(kPinnedPieceBytes, spec_.bytes - PieceOffset(piece));
}

HostSpan Slab::Piece(int piece) const {
  return memory_.subspan(PieceOffset(piece), PieceBytes(piece));
}

absl::Status Slab::PinPiece(int piece) {
  for (size_t i = 0; i < spec_.pinners.size(); ++i) {
    absl::Status status = spec_.pinners[i]->Pin(Piece(piece));
    if (status.ok()) continue;
    while (i-- > 0) spec_.pinners[i]->Unpin(Piece(piece));
    return status;
  }
  pinned_[piece] = 1;
  return absl::OkStatus();
}

void Slab::Empty() {
  if (!file_.valid()) return;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
            spec_.bytes);
}

bool Slab::UnpinSome() {
  while (unpinned_ < pieces()) {
    const int piece = unpinned_++;
    if (std::exchange(pinned_[piece], 0) == 0) continue;
    for (Backend* pinner : spec_.pinners) pinner->Unpin(Piece(piece));
    return true;
  }
  return false;
}

void Slab::Retire() {
  while (UnpinSome()) {
  }
  Empty();
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
  memory_ = {};
  file_ = Descriptor();
}

}  // namespace attnd::server
