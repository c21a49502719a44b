// Rows of tensors become tiles of words. Compiled once per target.
#if defined(ATTND_KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTND_KERNELS_CPU_PACK_INL_H_
#undef ATTND_KERNELS_CPU_PACK_INL_H_
#else
#define ATTND_KERNELS_CPU_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace attnd::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What Transpose4 and whole vectors both divide.
inline constexpr int64_t kLanePad = kLanes < 4 ? 4 : kLanes;

HWY_INLINE int64_t RoundUpToLanes(int64_t n) {
  return (n + kLanePad - 1) / kLanePad * kLanePad;
}

// Words that n elements along a product's k take.
template <class Words>
HWY_INLINE int64_t WordsOf(int64_t n) {
  return (n + Words::kElements - 1) / Words::kElements;
}

// Calls run(Words()) for what a problem's products are made of; f32 will always
// do.
template <class Run>
HWY_INLINE void WithWords([[maybe_unused]] const Problem& p,
                          [[maybe_unused]] bool f32, Run run) {
#if ATTND_BF16_DOT
  if (p.dtype() == DType::kBF16 && !f32 && HasBF16Dot()) {
    return run(BF16Words());
  }
#endif
  run(F32Words());
}

// Calls run(From()) for the conversion that reads `dtype`.
template <class Run>
HWY_INLINE void WithElements(DType dtype, Run run) {
  switch (dtype) {
    case DType::kF32:
      return run(FromF32());
    case DType::kF16:
      return run(FromF16());
    case DType::kBF16:
      return run(FromBF16());
  }
}

// Rows [begin, end) of a tile that lie `stride` bytes apart.
struct RowRun {
  int64_t begin = 0, end = 0;
  const std::byte* first = nullptr;
  int64_t stride = 0;
};

HWY_INLINE RowRun RunOf(const ConstTensorView& view, int64_t b, int64_t token,
                        int64_t head, int64_t begin, int64_t count) {
  return {begin, begin + count, RowAt(view, b, token, head),
          view.token_stride * SizeOf(view.dtype)};
}

// A tile's rows by number; find(i) gives the run that i is in.
template <class Find>
class Rows {
 public:
  explicit Rows(Find find) : find_(find) {}

  const void* operator()(int64_t i) {
    if (i < run_.begin || i >= run_.end) run_ = find_(i);
    return run_.first + (i - run_.begin) * run_.stride;
  }

 private:
  Find find_;
  RowRun run_;
};

// Rows of K or V: of the tile that is `pieces`.
HWY_INLINE auto KvRows(const Sequence& sequence,
                       const std::vector<Piece>& pieces,
                       ConstTensorView KvSegment::*which, int64_t kv_head) {
  return Rows([&sequence, &pieces, which, kv_head](int64_t column) {
    auto piece = pieces.begin();
    while (column >= piece->offset + piece->count) ++piece;
    return RunOf(sequence.kv(piece->segment).*which, sequence.b(), piece->first,
                 kv_head, piece->offset, piece->count);
  });
}

// The same tile where it lies, if that is as good as packed.
template <class Words>
HWY_INLINE std::optional<ConstTile> TileInPlace(
    const Sequence& sequence, const std::vector<Piece>& pieces,
    ConstTensorView KvSegment::*which, int64_t kv_head, int64_t dim) {
  const Piece& piece = pieces.front();
  const ConstTensorView& view = sequence.kv(piece.segment).*which;
  if (Words::kElements > 1 || pieces.size() > 1 || !LiesAsTile(view, dim)) {
    return std::nullopt;
  }
  const std::byte* row = RowAt(view, sequence.b(), piece.first, kv_head);
  return ConstTile(reinterpret_cast<const float*>(row), dim);
}

// Tokens of Q, K, V or dO become words in three ways. row_of(i) is token i's
// row of `dim` elements, or null for zeros. All f32 words need is converted on
// the way; bf16 words are what lies in memory.

// A row to words, zeros up to `padded` of them, a multiple of kLanes.
template <class Words>
HWY_INLINE void LoadWords(const void* from, DType dtype, int64_t dim,
                          int64_t padded, float* to) {
  if constexpr (Words::kElements == 1) {
    LoadRow(from, dtype, from == nullptr ? 0 : dim, padded, to);
  } else {
    const int64_t bytes = from == nullptr ? 0 : dim * SizeOf(dtype);
    if (bytes > 0) std::memcpy(to, from, bytes);
    std::memset(reinterpret_cast<std::byte*>(to) + bytes, 0,
                padded * sizeof(float) - bytes);
  }
}

// Asks for a row that is packed some rows later.
template <class RowOf>
HWY_INLINE void Ahead(int64_t i, int64_t tokens, int64_t bytes, RowOf& row_of) {
  constexpr int64_t kAhead = 16;  // tokens
  constexpr int64_t kLine = 64;   // bytes
  if (i + kAhead >= tokens) return;
  const auto* row = static_cast<const std::byte*>(row_of(i + kAhead));
  if (row == nullptr) return;
  for (int64_t at = 0; at < bytes; at += kLine) hwy::Prefetch(row + at);
}

// Token i's row to row i of `to` [tokens, words of dim], zeros up to the next
// multiple of kLanes.
template <class Words, class RowOf>
HWY_INLINE void PackRows(int64_t tokens, int64_t dim, DType dtype, RowOf row_of,
                         Tile to) {
  RowOf ahead = row_of;
  const int64_t padded = RoundUpToLanes(WordsOf<Words>(dim));
  for (int64_t i = 0; i < tokens; ++i) {
    Ahead(i, tokens, dim * SizeOf(dtype), ahead);
    LoadWords<Words>(row_of(i), dtype, dim, padded, to.row(i));
  }
}

// The same to column i of `to` [words of dim rounded up to 4, tokens], zeros in
// the columns up to the next multiple of kLanes. From reads words.
template <class Words, class From, class RowOf>
HWY_INLINE void PackColumnsAs(int64_t tokens, int64_t dim, DType dtype,
                              RowOf row_of, Tile to) {
  RowOf ahead = row_of;
  HWY_ALIGN float rest[4 * 16];
  static constexpr float kZeros[kMaxHeadDim] = {};
  // Whole vectors are transposed from where they lie.
  const int64_t whole = dim / Words::kElements / kLanes * kLanes;
  const int64_t left = dim - whole * Words::kElements;
  for (int64_t i = 0; i < RoundUpToLanes(tokens); i += 4) {
    const typename From::T* rows[4];
    for (int64_t r = 0; r < 4; ++r) {
      const void* row = i + r < tokens ? row_of(i + r) : nullptr;
      rows[r] = static_cast<const typename From::T*>(
          row == nullptr ? static_cast<const void*>(kZeros) : row);
      if (i + r < tokens) Ahead(i + r, tokens, dim * SizeOf(dtype), ahead);
    }
    float* column = to.data + i;
    for (int64_t c = 0; c < whole; c += kLanes) {
      TransposeVectors(From()(rows[0] + c), From()(rows[1] + c),
                       From()(rows[2] + c), From()(rows[3] + c),
                       column + c * to.stride, to.stride);
    }
    if (left == 0) continue;
    for (int64_t r = 0; r < 4; ++r) {
      LoadWords<Words>(rows[r] + whole, dtype, left, kLanes, rest + r * 16);
    }
    Transpose4(rest, 16, (WordsOf<Words>(left) + 3) / 4 * 4,
               column + whole * to.stride, to.stride);
  }
}

template <class Words, class RowOf>
HWY_INLINE void PackColumns(int64_t tokens, int64_t dim, DType dtype,
                            RowOf row_of, Tile to) {
  if constexpr (Words::kElements == 1) {
    WithElements(dtype, [&](auto from) {
      PackColumnsAs<Words, decltype(from)>(tokens, dim, dtype, row_of, to);
    });
  } else {
    PackColumnsAs<Words, FromF32>(tokens, dim, dtype, row_of, to);
  }
}

// For products along the tokens: element d of the tokens of one word to column
// d of `to` [words of tokens, dim], zeros up to the next multiple of kLanes.
template <class Words, class RowOf>
HWY_INLINE void PackAlongTokens(int64_t tokens, int64_t dim, DType dtype,
                                RowOf row_of, Tile to) {
  if constexpr (Words::kElements == 1) {
    PackRows<Words>(tokens, dim, dtype, row_of, to);
  } else {
    RowOf ahead = row_of;
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint16_t, F32> dh;
    HWY_ALIGN float rows[2][kMaxHeadDim / 2];
    const auto element = [&](int64_t r, int64_t d) {
      return hn::PromoteTo(
          du, hn::Load(dh, reinterpret_cast<const uint16_t*>(rows[r]) + d));
    };
    const int64_t padded = RoundUpToLanes(dim);
    for (int64_t i = 0; i < tokens; i += 2) {
      for (int64_t r = 0; r < 2; ++r) {
        if (i + r < tokens) Ahead(i + r, tokens, dim * SizeOf(dtype), ahead);
        LoadWords<Words>(i + r < tokens ? row_of(i + r) : nullptr, dtype, dim,
                         padded / 2, rows[r]);
      }
      for (int64_t d = 0; d < padded; d += kLanes) {
        const auto pair =
            hn::Or(element(0, d), hn::ShiftLeft<16>(element(1, d)));
        hn::Store(hn::BitCast(F32(), pair), F32(), to.row(i / 2) + d);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attnd::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATTND_KERNELS_CPU_PACK_INL_H_
