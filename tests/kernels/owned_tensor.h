#ifndef ATTND_TESTS_KERNELS_OWNED_TENSOR_H_
#define ATTND_TESTS_KERNELS_OWNED_TENSOR_H_

// Tensors that own their memory, with gaps between tokens, heads and batches.
// All of it is NaN until set, so that reading what must not be read shows, and
// so does writing where nothing should be written.

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "kernels/attention.h"

namespace attnd::testing {

// Memory that begins with a cache line, as servers and frameworks allocate it.
template <class T>
struct CacheLines {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  CacheLines() = default;
  template <class U>
  CacheLines(const CacheLines<U>&) {}  // NOLINT: as std::allocator

  T* allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), kLine));
  }
  void deallocate(T* memory, size_t) { ::operator delete(memory, kLine); }
  bool operator==(const CacheLines&) const { return true; }
};

// [batch, tokens, heads, dim]
class OwnedTensor {
 public:
  OwnedTensor() = default;
  // `heads_first` lays out as BHSD. `gap`: elements unused after every row of
  // `dim` and before the first.
  OwnedTensor(DType dtype, int64_t batch, int64_t tokens, int64_t heads,
              int64_t dim, bool heads_first = false, int64_t gap = 0);

  explicit operator bool() const { return !bytes_.empty(); }
  TensorView view();
  ConstTensorView view() const;
  DType dtype() const { return dtype_; }

  double Get(int64_t b, int64_t t, int64_t h, int64_t d) const;
  void Set(int64_t b, int64_t t, int64_t h, int64_t d, double value);
  void Poison();  // NaN everywhere
  // Whether everything that is not an element is as Poison left it.
  bool GapsIntact() const;
  // All elements in the order [batch, tokens, heads, dim].
  std::vector<double> Values() const;
  // All memory, gaps included.
  std::vector<uint8_t> bytes() const { return {bytes_.begin(), bytes_.end()}; }

  int64_t batch() const { return batch_; }
  int64_t tokens() const { return tokens_; }
  int64_t heads() const { return heads_; }
  int64_t dim() const { return dim_; }

 private:
  int64_t Offset(int64_t b, int64_t t, int64_t h) const;

  DType dtype_ = DType::kF32;
  int64_t batch_ = 0, tokens_ = 0, heads_ = 0, dim_ = 0;
  int64_t batch_stride_ = 0, token_stride_ = 0, head_stride_ = 0;
  int64_t first_ = 0;  // elements before the first
  std::vector<uint8_t, CacheLines<uint8_t>> bytes_;
};

// [batch, heads, len] f32: LSE and its kin.
class OwnedRows {
 public:
  OwnedRows() = default;
  OwnedRows(int64_t batch, int64_t heads, int64_t len, int64_t gap = 0)
      : tensor_(DType::kF32, batch, 1, heads, len, false, gap) {}

  explicit operator bool() const { return static_cast<bool>(tensor_); }
  RowView view();
  ConstRowView view() const;
  double Get(int64_t b, int64_t h, int64_t i) const {
    return tensor_.Get(b, 0, h, i);
  }
  void Set(int64_t b, int64_t h, int64_t i, double value) {
    tensor_.Set(b, 0, h, i, value);
  }
  void Poison() { tensor_.Poison(); }
  bool GapsIntact() const { return tensor_.GapsIntact(); }
  std::vector<double> Values() const { return tensor_.Values(); }
  std::vector<uint8_t> bytes() const { return tensor_.bytes(); }

 private:
  OwnedTensor tensor_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_KERNELS_OWNED_TENSOR_H_
