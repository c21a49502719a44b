#include "proto/wire/grpc_bytes.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace attnd::wire {
namespace {

// Shared by the slices that borrow from one caller; the last one frees it.
struct Borrow {
  std::atomic<int64_t> slices;
  absl::AnyInvocable<void()> release;
};

void DropSlice(void* shared) {
  auto* borrow = static_cast<Borrow*>(shared);
  // Whoever releases must see that every other reader is done.
  if (borrow->slices.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (borrow->release) borrow->release();
  delete borrow;
}

// The size from which pieces are borrowed.
int64_t BorrowFrom(absl::Span<const Piece> pieces) {
  return TotalBytes(pieces) <= kCopiedMessageBytes ? kCopiedMessageBytes + 1
                                                   : kCopiedPieceBytes;
}

}  // namespace

ReceivedBytes::ReceivedBytes(grpc::ByteBuffer& buffer) {
  buffer_.Swap(&buffer);
  if (!buffer_.Valid() || !buffer_.Dump(&slices_).ok()) slices_.clear();
  // Short slices hold their bytes themselves, so views wait until the vector
  // no longer moves them.
  fragments_.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) {
    fragments_.emplace_back(reinterpret_cast<const char*>(slice.begin()),
                            slice.size());
  }
}

ReceivedBytes& ReceivedBytes::operator=(ReceivedBytes&& other) noexcept {
  if (this == &other) return *this;
  Release();
  buffer_.Swap(&other.buffer_);
  slices_.swap(other.slices_);
  fragments_.swap(other.fragments_);
  return *this;
}

void ReceivedBytes::Release() {
  fragments_.clear();
  slices_.clear();
  buffer_.Clear();
}

grpc::ByteBuffer ToByteBuffer(absl::Span<const Piece> pieces,
                              absl::AnyInvocable<void()> release) {
  const int64_t borrow_from = BorrowFrom(pieces);
  const auto is_borrowed = [borrow_from](const Piece& piece) {
    return static_cast<int64_t>(piece.borrowed.size()) >= borrow_from;
  };
  const int64_t borrowed =
      std::count_if(pieces.begin(), pieces.end(), is_borrowed);
  Borrow* borrow = nullptr;
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * borrowed + 1);
  std::string copied;
  const auto flush = [&] {
    if (!copied.empty()) slices.emplace_back(copied);
    copied.clear();
  };
  for (const Piece& piece : pieces) {
    copied += piece.owned;
    if (!is_borrowed(piece)) {
      copied.append(piece.borrowed.data(), piece.borrowed.size());
      continue;
    }
    flush();
    if (borrow == nullptr) {
      borrow = new Borrow{{borrowed}, std::exchange(release, nullptr)};
    }
    slices.emplace_back(const_cast<char*>(piece.borrowed.data()),
                        piece.borrowed.size(), DropSlice, borrow);
  }
  flush();
  grpc::ByteBuffer buffer(slices.data(), slices.size());
  if (release) release();  // nothing is borrowed
  return buffer;
}

}  // namespace attnd::wire
