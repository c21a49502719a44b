#include "tests/emulation/shared_memory.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/emulation/block.h"
#include "tests/emulation/scheduler.h"

namespace attnd::emulation {

SharedMemory::~SharedMemory() { std::free(data_); }

void SharedMemory::Reset(size_t bytes) {
  if (bytes != bytes_) {
    // Of exactly this size, so that the address sanitizer sees what goes past.
    std::free(data_);
    void* memory = nullptr;
    if (bytes > 0 && posix_memalign(&memory, 1024, bytes) != 0) std::abort();
    data_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
  }
  if (bytes > 0) std::memset(data_, 0xff, bytes);
  stores_.assign((bytes + 15) / 16, {});
}

std::byte* SharedMemory::At(uint32_t address, uint32_t bytes) {
  if (address < kBase || address - kBase + uint64_t{bytes} > bytes_) {
    return nullptr;
  }
  return data_ + (address - kBase);
}

uint32_t SharedMemory::AddressOf(const void* pointer) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  if (at < data_ || at > data_ + bytes_) return 0;
  return kBase + static_cast<uint32_t>(at - data_);
}

void SharedMemory::NoteStore(uint32_t address, const Thread& thread) {
  stores_[(address - kBase) / 16] = {thread.index + 1, thread.fences};
}

void SharedMemory::NoteCopy(uint32_t address, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += 16) {
    stores_[(address + i - kBase) / 16] = {};
  }
}

const SharedMemory::Store& SharedMemory::LastStore(uint32_t address) const {
  return stores_[(address - kBase) / 16];
}

std::byte* SharedAt(uint32_t address, uint32_t bytes) {
  if (address % bytes != 0) {
    Fail(absl::StrCat("shared memory at ", absl::Hex(address),
                      ", not a multiple of ", bytes));
  }
  std::byte* at = Self().block->memory.At(address, bytes);
  if (at == nullptr) {
    Fail(absl::StrCat("no shared memory at ", absl::Hex(address)));
  }
  return at;
}

uint32_t SharedAddressOf(const void* pointer) {
  const uint32_t address = Self().block->memory.AddressOf(pointer);
  if (address == 0) Fail("the shared address of what is not shared");
  return address;
}

std::byte* DynamicSharedMemory() { return Self().block->memory.data(); }

const std::byte* ReadAsync(Block& block, uint32_t address) {
  static const std::byte nothing[16] = {};
  const std::byte* at =
      address % 16 == 0 ? block.memory.At(address, 16) : nullptr;
  if (at == nullptr) {
    Report(absl::StrCat("an operand at ", absl::Hex(address),
                        " is not in shared memory"));
    return nothing;
  }
  const SharedMemory::Store& store = block.memory.LastStore(address);
  if (store.thread > 0 &&
      store.fences == block.threads[store.thread - 1]->fences) {
    Report(absl::StrCat("wgmma or the copy engine reads shared memory at ",
                        absl::Hex(address), " that thread ", store.thread - 1,
                        " has stored to without a proxy fence since"));
  }
  return at;
}

}  // namespace attnd::emulation
