#include "tests/emulation/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace attnd::emulation {
namespace {

constexpr uint32_t kMark = 0x746d6170;
constexpr int64_t kElements = TensorMap::kRowBytes / 2;

static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));
static_assert(alignof(TensorMap) <= alignof(CUtensorMap));
static_assert(std::is_trivially_copyable_v<TensorMap>);

}  // namespace

const TensorMap* TensorMap::Of(const CUtensorMap* map) {
  const auto* made = reinterpret_cast<const TensorMap*>(map);
  const bool is_aligned = reinterpret_cast<uintptr_t>(map) % 64 == 0;
  return is_aligned && made->mark == kMark ? made : nullptr;
}

TensorMap::Piece TensorMap::PieceOf(const int (&at)[4], uint32_t row) const {
  const int64_t place[4] = {at[0], at[1] + int64_t{row}, at[2], at[3]};
  std::byte* from = base;
  for (int i = 1; i < 4; ++i) {
    if (place[i] < 0 || place[i] >= sizes[i]) return {nullptr, 0, 0};
    from += place[i] * strides[i];
  }
  const int64_t begin = std::clamp(-place[0], int64_t{0}, kElements);
  const int64_t end = std::clamp(sizes[0] - place[0], begin, kElements);
  return {from + 2 * (place[0] + begin), static_cast<uint32_t>(2 * begin),
          static_cast<uint32_t>(2 * (end - begin))};
}

void TensorMap::LoadRow(const int (&at)[4], uint32_t row, std::byte* to) const {
  const Piece piece = PieceOf(at, row);
  std::memset(to, 0, kRowBytes);
  if (piece.bytes == 0) return;
  std::memcpy(to + piece.skipped, piece.in_tensor, piece.bytes);
}

void TensorMap::StoreRow(const int (&at)[4], uint32_t row,
                         const std::byte* from) const {
  const Piece piece = PieceOf(at, row);
  if (piece.bytes == 0) return;
  std::memcpy(piece.in_tensor, from + piece.skipped, piece.bytes);
}

extern "C" CUresult attnd_emulation_encode_tiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
    const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill fill) {
  const bool of_16_bits = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ||
                          type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if (!of_16_bits || rank != 4 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
      fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || box[0] != kElements ||
      box[1] == 0 || box[1] > 256 || box[2] != 1 || box[3] != 1 ||
      reinterpret_cast<uintptr_t>(base) % 16 != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TensorMap made{};
  made.base = static_cast<std::byte*>(base);
  made.rows = box[1];
  made.mark = kMark;
  for (int i = 0; i < 4; ++i) {
    if (sizes[i] == 0 || sizes[i] > uint64_t{1} << 32 || steps[i] != 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    made.sizes[i] = static_cast<int64_t>(sizes[i]);
    if (i == 0) continue;
    if (strides[i - 1] % 16 != 0 || strides[i - 1] >= uint64_t{1} << 40) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    made.strides[i] = static_cast<int64_t>(strides[i - 1]);
  }
  std::memset(map, 0, sizeof(*map));
  std::memcpy(map, &made, sizeof(made));
  return CUDA_SUCCESS;
}

}  // namespace attnd::emulation
