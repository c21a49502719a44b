#include "tests/emulation/wgmma.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "tests/emulation/matrix.h"
#include "tests/emulation/scheduler.h"
#include "tests/emulation/warp.h"

namespace attnd::emulation {
namespace {

constexpr int kRows = 16;   // of a warp
constexpr int kDepth = 16;  // of an operation
constexpr int kMostN = 256;

// A matrix in shared memory (PTX ISA, "Matrix descriptor format").
class Tile {
 public:
  Tile(Block& block, uint64_t descriptor)
      : block_(block),
        start_(static_cast<uint32_t>(descriptor & 0x3fff) << 4),
        panel_(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        eight_rows_(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4) {
    constexpr uint64_t kSwizzle128 = 1;
    if (descriptor >> 62 != kSwizzle128 || (descriptor >> 49 & 7) != 0) {
      Report("only tiles with a swizzle of 128 bytes are emulated");
    }
  }

  // Elements 8 c to 8 c + 7 of a row. Rows that are longer than 64 elements go
  // on in the next panel.
  void Read(int row, int c, DType type, float* to) const {
    const uint32_t at = start_ + c / 8 * panel_ + row / 8 * eight_rows_ +
                        row % 8 * 128 + c % 8 * 16;
    uint16_t elements[8];
    std::memcpy(elements, ReadAsync(block_, Swizzle128(at)), sizeof(elements));
    for (int i = 0; i < 8; ++i) to[i] = ToFloat(elements[i], type);
  }

 private:
  Block& block_;
  const uint32_t start_, panel_, eight_rows_;
};

using A = float[kRows][kDepth];
using B = float[kDepth][kMostN];

void ReadA(const WgmmaQueue::Operation& op, const Tile& tile, int first,
           A& to) {
  for (int i = 0; i < 16; ++i) {
    for (int c = 0; c < 2; ++c) {
      float eight[8];
      if (op.shape.a_transposed) {  // row i of the tile is k
        tile.Read(i, first / 8 + c, op.shape.type, eight);
        for (int m = 0; m < 8; ++m) to[8 * c + m][i] = eight[m];
      } else {
        tile.Read(first + i, c, op.shape.type, &to[i][8 * c]);
      }
    }
  }
}

void ReadA(const uint32_t* const (&words)[32], DType type, A& to) {
  for (int t = 0; t < 32; ++t) {
    for (int i = 0; i < 4; ++i) {
      for (int h = 0; h < 2; ++h) {
        to[t / 4 + 8 * (i % 2)][2 * (t % 4) + 8 * (i / 2) + h] =
            ToFloat(words[t][i], h, type);
      }
    }
  }
}

void ReadB(const WgmmaQueue::Operation& op, const Tile& tile, B& to) {
  for (int c = 0; c < op.shape.n / 8; ++c) {
    if (!op.shape.b_transposed) {
      for (int k = 0; k < kDepth; ++k) {
        tile.Read(k, c, op.shape.type, &to[k][8 * c]);
      }
      continue;
    }
    for (int i = 0; i < 8; ++i) {  // rows of the tile are columns of B
      float row[kDepth];
      tile.Read(8 * c + i, 0, op.shape.type, row);
      tile.Read(8 * c + i, 1, op.shape.type, row + 8);
      for (int k = 0; k < kDepth; ++k) to[k][8 * c + i] = row[k];
    }
  }
}

// Where lane t has d[i] of what its warp has.
size_t PlaceOf(int t, int i, int n) {
  const int row = t / 4 + 8 * (i % 4 / 2);
  return static_cast<size_t>(row * n + i / 4 * 8 + 2 * (t % 4) + i % 2);
}

}  // namespace

WgmmaQueue::Accumulator& WgmmaQueue::AccumulatorOf(const Operation& op) {
  for (const auto& known : accumulators_) {
    if (known->d[0] != op.d[0]) continue;
    if (known->n != op.shape.n) Fail("wgmma of other shapes still write D");
    return *known;
  }
  const int n = op.shape.n;
  accumulators_.push_back(std::make_unique<Accumulator>());
  Accumulator& made = *accumulators_.back();
  std::copy(op.d, op.d + 32, made.d);
  made.n = n;
  made.values.resize(size_t{kRows} * n);
  for (int t = 0; t < 32; ++t) {
    for (int i = 0; i < n / 2; ++i) {
      made.values[PlaceOf(t, i, n)] =
          std::exchange(op.d[t][i], std::numeric_limits<float>::quiet_NaN());
    }
  }
  return made;
}

void WgmmaQueue::Start(const Operation& operation) {
  if (open_.empty() && !fenced_) {
    Fail("the first wgmma of a group, without wgmma.fence before");
  }
  Accumulator& to = AccumulatorOf(operation);
  ++to.operations;
  open_.push_back({operation, &to});
}

void WgmmaQueue::Commit() {
  groups_.push_back(std::exchange(open_, {}));
  fenced_ = false;
}

void WgmmaQueue::MakeOne(Warp& warp) {
  if (groups_.empty()) return;
  for (const Started& started : groups_.front()) Make(warp, started);
  groups_.pop_front();
}

void WgmmaQueue::Make(Warp& warp, const Started& started) {
  const Operation& op = started.operation;
  Accumulator& to = *started.to;
  const int n = op.shape.n;
  static A a;
  static B b;
  if (op.a_words[0] != nullptr) {
    ReadA(op.a_words, op.shape.type, a);
  } else {
    ReadA(op, Tile(*warp.block, op.a), static_cast<int>(warp.index % 4) * kRows,
          a);
  }
  ReadB(op, Tile(*warp.block, op.b), b);
  for (int m = 0; m < kRows; ++m) {
    float* row = &to.values[static_cast<size_t>(m) * n];
    if (!op.accumulate) std::fill_n(row, n, 0.0f);
    for (int k = 0; k < kDepth; ++k) {
      const float x = op.shape.subtract ? -a[m][k] : a[m][k];
      for (int i = 0; i < n; ++i) row[i] += x * b[k][i];
    }
  }
  if (--to.operations > 0) return;
  for (int t = 0; t < 32; ++t) {
    for (int i = 0; i < n / 2; ++i) to.d[t][i] = to.values[PlaceOf(t, i, n)];
  }
  std::erase_if(accumulators_, [&](const auto& x) { return x.get() == &to; });
}

void FenceWgmma() {
  struct Lane {
  } lane;
  Together("wgmma.fence", lane,
           [](const auto&) { Self().warp->wgmma.Fence(); });
}

void StartWgmma(const WgmmaShape& shape, float* d, const uint32_t* a_words,
                uint64_t a, uint64_t b, bool accumulate) {
  struct Lane {
    WgmmaShape shape;
    float* d;
    const uint32_t* a_words;
    uint64_t a, b;
    bool accumulate;
  } lane{shape, d, a_words, a, b, accumulate};
  Together("wgmma.mma_async", lane, [](const auto& lanes) {
    const Lane& first = *lanes[0];
    WgmmaQueue::Operation op{
        first.shape, first.accumulate, first.a, first.b, {}, {}};
    for (unsigned t = 0; t < kLanes; ++t) {
      const Lane& other = *lanes[t];
      if (other.a != first.a || other.b != first.b ||
          other.accumulate != first.accumulate ||
          other.shape.n != first.shape.n) {
        Fail("lanes of a warp start different wgmma");
      }
      op.a_words[t] = other.a_words;
      op.d[t] = other.d;
    }
    Self().warp->wgmma.Start(op);
  });
}

void CommitWgmma() {
  struct Lane {
  } lane;
  Together("wgmma.commit_group", lane, [](const auto&) {
    Warp& warp = *Self().warp;
    warp.wgmma.Commit();
    if (Random(3) > 0) return;
    while (warp.wgmma.committed() > 0) warp.wgmma.MakeOne(warp);
  });
}

void WaitForWgmma(size_t pending) {
  struct Lane {
    size_t pending;
  } lane{pending};
  Together("wgmma.wait_group", lane, [](const auto& lanes) {
    Warp& warp = *Self().warp;
    while (warp.wgmma.committed() > lanes[0]->pending) warp.wgmma.MakeOne(warp);
  });
}

}  // namespace attnd::emulation
