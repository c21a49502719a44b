#include "kernels/cuda/sm80/decode_tiles.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cuda/sm80/config.h"

namespace attnd::cuda::sm80 {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Tiles DecodeTiles(const Problem& p) {
  const int64_t columns = PaddedKvLen(p);
  Tiles tiles;
  tiles.problem = &p;
  tiles.heads = p.batch * p.kv_heads;
  tiles.row_blocks =
      CeilDiv(std::min(p.q_len, kDecodeRows) * p.group(), kDecodeTile);
  tiles.parts = MostParts(columns);
  tiles.columns = std::min(columns, PartColumns(columns));
  tiles.tile_rows = TileRows(p.q_len, p.group());
  return tiles;
}

ReadAhead DecodeAhead(const Problem& p, const Kernel& kernel) {
  const auto whole = [&kernel](const ConstTensorView& t, int64_t dim) {
    return dim == kernel.dim && reinterpret_cast<uintptr_t>(t.data) % 16 == 0 &&
           (t.batch_stride | t.head_stride | t.token_stride) % 8 == 0;
  };
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (p.kv.size() != 1 || !p.q_lens.empty() || !p.kv[0].lens.empty() ||
      (p.mask.left >= 0 && p.mask.left < p.kv[0].len) ||  // hides first tiles
      p.q_len > kDecodeRows || p.group() > kMost / kDecodeRows ||
      p.kv[0].len > kMost || !whole(p.q, p.head_dim) ||
      !whole(p.kv[0].k, p.head_dim) || !whole(p.kv[0].v, p.value_dim)) {
    return {};
  }
  ReadAhead ahead;
  ahead.q = p.q;
  ahead.k = p.kv[0].k;
  ahead.v = p.kv[0].v;
  ahead.kv_heads = static_cast<uint32_t>(p.kv_heads);
  ahead.group = static_cast<uint32_t>(p.group());
  ahead.rows = static_cast<uint32_t>(p.q_len * p.group());
  ahead.columns = static_cast<uint32_t>(p.kv[0].len);
  ahead.part_columns = static_cast<uint32_t>(PartColumns(p.kv[0].len));
  return ahead;
}

}  // namespace attnd::cuda::sm80
