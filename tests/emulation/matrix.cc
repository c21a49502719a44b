#include "tests/emulation/matrix.h"

#include <cstring>
#include <utility>

#include "tests/emulation/scheduler.h"
#include "tests/emulation/warp.h"

namespace attnd::emulation {
namespace {

// Of the two elements of a word.
uint16_t Half(uint32_t word, unsigned which) {
  return static_cast<uint16_t>(word >> (16 * which));
}

// Element `which` of the two that lane t has of a matrix.
struct Place {
  unsigned row, column;
  Place(unsigned t, unsigned which, bool transposed)
      : row(t / 4), column(2 * (t % 4) + which) {
    if (transposed) std::swap(row, column);
  }
};

struct MatrixLane {
  std::byte* row;   // lane 8 m + r's is row r of matrix m
  uint32_t* words;  // of each matrix
  bool transposed;
};

}  // namespace

void LoadMatrices(uint32_t (&r)[4], uint32_t row, bool transposed) {
  MatrixLane lane{SharedAt(row, 16), r, transposed};
  Together(
      transposed ? "ldmatrix.trans" : "ldmatrix", lane, [](const auto& lanes) {
        for (unsigned t = 0; t < kLanes; ++t) {
          for (unsigned m = 0; m < 4; ++m) {
            uint16_t two[2];
            for (unsigned i = 0; i < 2; ++i) {
              const Place at(t, i, lanes[t]->transposed);
              std::memcpy(&two[i], lanes[8 * m + at.row]->row + 2 * at.column,
                          2);
            }
            lanes[t]->words[m] = two[0] | static_cast<uint32_t>(two[1]) << 16;
          }
        }
      });
}

void StoreMatrices(uint32_t row, const uint32_t (&r)[4], bool transposed) {
  uint32_t words[4] = {r[0], r[1], r[2], r[3]};
  MatrixLane lane{SharedAt(row, 16), words, transposed};
  Self().block->memory.NoteStore(row, Self());
  Together(
      transposed ? "stmatrix.trans" : "stmatrix", lane, [](const auto& lanes) {
        for (unsigned t = 0; t < kLanes; ++t) {
          for (unsigned m = 0; m < 4; ++m) {
            for (unsigned i = 0; i < 2; ++i) {
              const Place at(t, i, lanes[t]->transposed);
              const uint16_t x = Half(lanes[t]->words[m], i);
              std::memcpy(lanes[8 * m + at.row]->row + 2 * at.column, &x, 2);
            }
          }
        }
      });
}

void MultiplyMatrices(float (&c)[4], const uint32_t (&a)[4],
                      const uint32_t (&b)[2], DType type) {
  struct Lane {
    float* c;
    const uint32_t *a, *b;
    DType type;
  } lane{c, a, b, type};
  Together("mma", lane, [](const auto& lanes) {
    const DType of = lanes[0]->type;
    float A[16][16], B[16][8], C[16][8];
    for (unsigned t = 0; t < kLanes; ++t) {
      const unsigned row = t / 4, column = 2 * (t % 4);
      for (unsigned i = 0; i < 4; ++i) {
        for (int h = 0; h < 2; ++h) {
          A[row + 8 * (i % 2)][column + 8 * (i / 2) + h] =
              ToFloat(lanes[t]->a[i], h, of);
          C[row + 8 * (i / 2)][column + i % 2] = lanes[t]->c[i];
        }
      }
      for (unsigned i = 0; i < 2; ++i) {
        for (int h = 0; h < 2; ++h) {
          B[column + 8 * i + h][row] = ToFloat(lanes[t]->b[i], h, of);
        }
      }
    }
    for (unsigned m = 0; m < 16; ++m) {
      for (unsigned k = 0; k < 16; ++k) {
        for (unsigned n = 0; n < 8; ++n) C[m][n] += A[m][k] * B[k][n];
      }
    }
    for (unsigned t = 0; t < kLanes; ++t) {
      for (unsigned i = 0; i < 4; ++i) {
        lanes[t]->c[i] = C[t / 4 + 8 * (i / 2)][2 * (t % 4) + i % 2];
      }
    }
  });
}

}  // namespace attnd::emulation
