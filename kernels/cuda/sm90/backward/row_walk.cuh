#ifndef ATTND_KERNELS_CUDA_SM90_BACKWARD_ROW_WALK_CUH_
#define ATTND_KERNELS_CUDA_SM90_BACKWARD_ROW_WALK_CUH_

#include "kernels/cuda/sm90/backward/tile.cuh"

namespace attnd::cuda::sm90 {

// Walks the tiles of rows that a block of threads visits: head after head of
// the group, the first rows first or the last ones. It is given the block each
// time, as the threads that walk have few registers.
template <int kRows>
class RowWalk {
 public:
  __device__ explicit RowWalk(const ColumnBlock& block)
      : head_(block.first_head + (block.row_blocks() == 0 ? block.group : 0)),
        row_block_(block.walk_begin) {}

  __device__ bool done(const ColumnBlock& block) const {
    return head_ == block.first_head + block.group;
  }
  __device__ int head() const { return head_; }
  __device__ int row_block() const { return row_block_; }
  // The tile's first row, in the sequence.
  __device__ int row() const { return row_block_ * kRows; }
  // The same among the padded rows of all heads, by which scratch is indexed.
  __device__ int padded_row(const ColumnBlock& block) const {
    return (block.first_padded_head + head_) * block.padded_rows + row();
  }
  __device__ void Next(const ColumnBlock& block) {
    row_block_ += block.walk_step;
    if (row_block_ == block.walk_end) {
      row_block_ = block.walk_begin;
      ++head_;
    }
  }

 private:
  int head_, row_block_;
};

}  // namespace attnd::cuda::sm90

#endif  // ATTND_KERNELS_CUDA_SM90_BACKWARD_ROW_WALK_CUH_
