#ifndef ATTND_KERNELS_CUT_UNIT_H_
#define ATTND_KERNELS_CUT_UNIT_H_

#include <cstdint>

namespace attnd {

// Where a sequence may be cut so that forward's results keep their bits: a part
// has all columns that its rows see, and maybe more, in one segment, and
// Problem::whole says what it is a part of.
struct CutUnit {
  // Rows: a part begins at a multiple of it, and ends at one or with the
  // sequence.
  int64_t rows = 1;
  // A part of fewer, though the sequence has more, would run in another kernel.
  int64_t least_rows = 1;
  // Columns: likewise.
  int64_t columns = 1;
  int64_t least_columns = 1;

  friend bool operator==(const CutUnit&, const CutUnit&) = default;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_CUT_UNIT_H_
