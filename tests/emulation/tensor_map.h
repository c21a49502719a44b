#ifndef ATTND_TESTS_EMULATION_TENSOR_MAP_H_
#define ATTND_TESTS_EMULATION_TENSOR_MAP_H_

// What the driver makes of a tensor for the copy engine; its own form of it,
// in CUtensorMap's opaque bytes.

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace attnd::emulation {

// Of four dimensions, of 16-bit elements, in boxes of 64 of them by some rows.
struct TensorMap {
  static constexpr uint32_t kRowBytes = 128;

  std::byte* base;
  int64_t sizes[4];    // elements
  int64_t strides[4];  // bytes
  uint32_t rows;       // of a box
  uint32_t mark;       // that it is one

  // Null if the bytes there are no map.
  static const TensorMap* Of(const CUtensorMap* map);

  uint32_t box_bytes() const { return rows * kRowBytes; }
  // Row `row` of the box at these coordinates; what is outside of the tensor
  // becomes 0, or is left as it is.
  void LoadRow(const int (&at)[4], uint32_t row, std::byte* to) const;
  void StoreRow(const int (&at)[4], uint32_t row, const std::byte* from) const;

 private:
  struct Piece {
    std::byte* in_tensor;
    uint32_t skipped, bytes;  // of the row
  };
  Piece PieceOf(const int (&at)[4], uint32_t row) const;
};

// cuTensorMapEncodeTiled, for what is emulated; all else is an invalid value.
extern "C" CUresult attnd_emulation_encode_tiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
    const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill);

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_TENSOR_MAP_H_
