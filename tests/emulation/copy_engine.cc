#include "tests/emulation/copy_engine.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/emulation/flush.h"
#include "tests/emulation/scheduler.h"
#include "tests/emulation/tensor_map.h"

namespace attnd::emulation {
namespace {

const TensorMap& Map(const CUtensorMap* map) {
  const TensorMap* found = TensorMap::Of(map);
  if (found == nullptr) Fail("the copy engine got what is no tensor map");
  return *found;
}

// Where a copy of so many bytes goes or comes from.
std::byte* Range(Block& block, uint32_t address, uint32_t bytes,
                 uint32_t alignment) {
  std::byte* at = block.memory.At(address, bytes);
  if (at == nullptr || address % alignment != 0 ||
      bytes % std::min(alignment, 16u) != 0) {
    Fail(absl::StrCat("the copy engine got ", bytes,
                      " bytes of shared memory at ", absl::Hex(address)));
  }
  return at;
}

// The copy will write there, and `make` does so.
template <class Make>
void StartLoad(uint32_t to, uint32_t bytes, uint32_t alignment,
               uint32_t mbarrier, const Make& make) {
  Block& block = BlockOf(to);
  if (&BlockOf(mbarrier) != &block) Fail("a copy counts for another block");
  std::byte* at = Range(block, to, bytes, alignment);
  std::memset(at, 0xff, bytes);
  MBarrier& barrier = FindMBarrier(block, mbarrier);
  Later(block, [&block, &barrier, make, at, to, bytes] {
    make(at);
    block.memory.NoteCopy(to, bytes);
    barrier.bytes -= bytes;
    barrier.MaybeEnd();
  });
}

// Calls act(row, offset in the row of 16 bytes, where in the tile they are).
template <class Act>
void ForEachChunk(uint32_t address, uint32_t rows, const Act& act) {
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < TensorMap::kRowBytes; i += 16) {
      const uint32_t at = address + row * TensorMap::kRowBytes + i;
      act(row, i, Swizzle128(at) - address);
    }
  }
}

}  // namespace

void StartBoxLoad(uint32_t to, const CUtensorMap* map, const int (&at)[4],
                  uint32_t mbarrier) {
  const TensorMap& tensor = Map(map);
  StartLoad(to, tensor.box_bytes(), TensorMap::kRowBytes, mbarrier,
            [tensor, to, place = std::to_array(at)](std::byte* tile) {
              int from[4];
              std::copy(place.begin(), place.end(), from);
              std::byte row[TensorMap::kRowBytes];
              ForEachChunk(to, tensor.rows,
                           [&](uint32_t r, uint32_t i, uint32_t offset) {
                             if (i == 0) tensor.LoadRow(from, r, row);
                             std::memcpy(tile + offset, row + i, 16);
                           });
            });
}

void StartBulkLoad(uint32_t to, const void* from, uint32_t bytes,
                   uint32_t mbarrier) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    Fail("a bulk copy from an address that is not a multiple of 16");
  }
  StartLoad(to, bytes, 16, mbarrier, [from, bytes](std::byte* memory) {
    std::memcpy(memory, from, bytes);
  });
}

void BulkPrefetch(const void* from, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) {
    Fail("a bulk prefetch whose address or size is not a multiple of 16");
  }
  const volatile auto* data = static_cast<const std::byte*>(from);
  for (uint32_t i = 0; i < bytes; ++i) data[i];
}

void StartBulkSend(uint32_t to, uint32_t from, uint32_t bytes,
                   uint32_t mbarrier) {
  Block& own = *Self().block;
  Range(own, from, bytes, 16);
  StartLoad(to, bytes, 16, mbarrier, [&own, from, bytes](std::byte* memory) {
    for (uint32_t i = 0; i < bytes; i += 16) {
      std::memcpy(memory + i, ReadAsync(own, from + i), 16);
    }
  });
}

void StartStore(uint32_t to, uint32_t value, uint32_t mbarrier) {
  StartLoad(to, sizeof(value), sizeof(value), mbarrier,
            [value](std::byte* memory) {
              std::memcpy(memory, &value, sizeof(value));
            });
}

void StartBoxStore(const CUtensorMap* map, const int (&at)[4], uint32_t from) {
  const TensorMap tensor = Map(map);
  Block& block = *Self().block;
  Range(block, from, tensor.box_bytes(), TensorMap::kRowBytes);
  auto rows = std::make_shared<std::vector<std::byte>>(tensor.box_bytes());
  const auto read = [tensor, &block, from, rows] {
    ForEachChunk(from, tensor.rows,
                 [&](uint32_t r, uint32_t i, uint32_t offset) {
                   std::memcpy(&(*rows)[size_t{r} * TensorMap::kRowBytes + i],
                               ReadAsync(block, from + offset), 16);
                 });
  };
  const auto write = [tensor, rows, place = std::to_array(at)] {
    int to[4];
    std::copy(place.begin(), place.end(), to);
    for (uint32_t r = 0; r < tensor.rows; ++r) {
      tensor.StoreRow(to, r, &(*rows)[size_t{r} * TensorMap::kRowBytes]);
    }
  };
  Self().stores.Add({read, write});
}

void StartBulkAdd(float* to, uint32_t from, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) {
    Fail("a bulk addition to an address that is not a multiple of 16");
  }
  Block& block = *Self().block;
  Range(block, from, bytes, 16);
  auto floats = std::make_shared<std::vector<float>>(bytes / sizeof(float));
  const auto read = [&block, from, bytes, floats] {
    for (uint32_t i = 0; i < bytes; i += 16) {
      std::memcpy(&(*floats)[i / sizeof(float)], ReadAsync(block, from + i),
                  16);
    }
  };
  const auto write = [to, floats] {
    for (size_t i = 0; i < floats->size(); ++i) AddFlushed(to[i], (*floats)[i]);
  };
  Self().stores.Add({read, write});
}

void FenceForAsync() { ++Self().fences; }

}  // namespace attnd::emulation
