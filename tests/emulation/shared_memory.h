#ifndef ATTND_TESTS_EMULATION_SHARED_MEMORY_H_
#define ATTND_TESTS_EMULATION_SHARED_MEMORY_H_

// A block's dynamic shared memory, and the 32-bit addresses of what is in it.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attnd::emulation {

struct Block;
struct Thread;

class SharedMemory {
 public:
  // The first address, behind what the system keeps: no address is 0.
  static constexpr uint32_t kBase = 1024;

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // As many bytes, all NaN of any type; what was there is gone.
  void Reset(size_t bytes);

  std::byte* data() { return data_; }
  // Null if it is none.
  std::byte* At(uint32_t address, uint32_t bytes);
  // 0 if it is nowhere in here.
  uint32_t AddressOf(const void* pointer) const;

  // wgmma and the copy engine see what a thread has stored only after that
  // thread has said so, by a fence: 16 bytes at a time, this is who has stored
  // there last, and how many fences he had made.
  void NoteStore(uint32_t address, const Thread& thread);
  void NoteCopy(uint32_t address, uint32_t bytes);  // by the copy engine
  struct Store {
    uint32_t thread = 0;  // and 1 more; 0: nobody
    uint32_t fences = 0;
  };
  const Store& LastStore(uint32_t address) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::vector<Store> stores_;  // of each 16 bytes
};

// Of the block of the thread that runs. All fail the launch where an address is
// outside of its shared memory or is not a multiple of `bytes`, a power of two
// up to 16.
std::byte* SharedAt(uint32_t address, uint32_t bytes);
uint32_t SharedAddressOf(const void* pointer);
std::byte* DynamicSharedMemory();

// 16 bytes there that wgmma or the copy engine read, of any block; reports it
// where that is wrong, or too early for what a thread has stored.
const std::byte* ReadAsync(Block& block, uint32_t address);

// Of tiles with a swizzle of 128 bytes, the rows of which are as long: where
// what would be at `address` is. In each eight rows the 16-byte chunks of a row
// change places by the row's number.
constexpr uint32_t Swizzle128(uint32_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_SHARED_MEMORY_H_
