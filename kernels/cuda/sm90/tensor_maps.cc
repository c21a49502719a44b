#include "kernels/cuda/sm90/tensor_maps.h"

#include <cstdint>
#include <utility>

#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/sm90/backward/tensor_maps.h"
#include "kernels/cuda/sm90/config.h"

namespace attnd::cuda::sm90 {
namespace {

// The sizes of a tensor as the copy engine sees it, innermost first.
struct Extents {
  int64_t dim, tokens, heads, batch;
};

// Null if the driver is too old to have it.
decltype(&cuTensorMapEncodeTiled) Encoder() {
  static const auto encoder =
      FindDriverFunction<decltype(cuTensorMapEncodeTiled)>(
          "cuTensorMapEncodeTiled", 12000);
  return encoder;
}

// The bytes from one element to the next of a dimension with `extent` of them,
// `stride` 16-bit elements apart; 0 if the copy engine cannot step so far.
uint64_t StrideBytes(int64_t stride, int64_t extent) {
  constexpr int64_t kTooFar = int64_t{1} << 40;
  if (extent <= 1) return 16;
  const int64_t bytes = stride * 2;
  return bytes > 0 && bytes % 16 == 0 && bytes < kTooFar ? bytes : 0;
}

// Makes the map of a tensor of 16-bit elements, in boxes of 64 columns by
// `box_tokens`; false if the copy engine cannot read it.
bool Encode(const ConstTensorView& view, const Extents& extents, int box_tokens,
            CUtensorMap& map) {
  const uint64_t sizes[] = {static_cast<uint64_t>(extents.dim),
                            static_cast<uint64_t>(extents.tokens),
                            static_cast<uint64_t>(extents.heads),
                            static_cast<uint64_t>(extents.batch)};
  const uint64_t strides[] = {StrideBytes(view.token_stride, extents.tokens),
                              StrideBytes(view.head_stride, extents.heads),
                              StrideBytes(view.batch_stride, extents.batch)};
  for (uint64_t stride : strides) {
    if (stride == 0) return false;
  }
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0) return false;
  const uint32_t box[] = {64, static_cast<uint32_t>(box_tokens), 1, 1};
  const uint32_t steps[] = {1, 1, 1, 1};
  return Encoder()(&map,
                   view.dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                   4, const_cast<void*>(view.data), sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Makes K's and V's maps of each segment, in boxes of `rows` tokens; false if
// one of them cannot be read.
bool EncodeSegments(const Problem& p, int rows, TensorMaps& made) {
  for (size_t i = 0; i < p.kv.size(); ++i) {
    const KvSegment& s = p.kv[i];
    if (s.len == 0) continue;  // nothing of it is loaded
    const int segment = static_cast<int>(i);
    if (!Encode(s.k, {p.head_dim, s.len, p.kv_heads, p.batch}, rows,
                made.maps[KMap(segment)]) ||
        !Encode(s.v, {p.value_dim, s.len, p.kv_heads, p.batch}, rows,
                made.maps[VMap(segment)])) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<TensorMaps> MakeTensorMaps(const ForwardArgs& args, int cols) {
  if (Encoder() == nullptr) return std::nullopt;
  const Problem& p = args.problem;
  std::optional<TensorMaps> made(std::in_place);
  auto& maps = made->maps;
  maps.resize(KMap(static_cast<int>(p.kv.size())));
  if (!Encode(p.q, {p.head_dim, p.q_len, p.q_heads, p.batch}, kConsumerRows,
              maps[kMapQ])) {
    return std::nullopt;
  }
  const ConstTensorView o{args.o.data, args.o.dtype, args.o.batch_stride,
                          args.o.token_stride, args.o.head_stride};
  made->has_o = o && o.dtype == p.dtype() &&
                Encode(o, {p.value_dim, p.q_len, p.q_heads, p.batch}, kWarpRows,
                       maps[kMapO]);
  if (!EncodeSegments(p, cols, *made)) return std::nullopt;
  return made;
}

std::optional<TensorMaps> MakeBackwardMaps(const BackwardArgs& args) {
  if (Encoder() == nullptr) return std::nullopt;
  const Problem& p = args.problem;
  std::optional<TensorMaps> made(std::in_place);
  auto& maps = made->maps;
  maps.resize(KMap(static_cast<int>(p.kv.size())));
  if (p.q_len > 0 &&
      (!Encode(p.q, {p.head_dim, p.q_len, p.q_heads, p.batch}, kMapRows,
               maps[kMapQ]) ||
       !Encode(args.d_o, {p.value_dim, p.q_len, p.q_heads, p.batch}, kMapRows,
               maps[kMapDo]))) {
    return std::nullopt;
  }
  if (!EncodeSegments(p, kMapRows, *made)) return std::nullopt;
  return made;
}

}  // namespace attnd::cuda::sm90
