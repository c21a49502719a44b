#ifndef ATTND_TESTS_SERVICE_FUZZ_PROBLEM_H_
#define ATTND_TESTS_SERVICE_FUZZ_PROBLEM_H_

// A problem of the service as a client holds it: contiguous tensors, and what
// is asked of them. The kernels' view of it is what the oracle reads.

#include <cstdint>
#include <string>
#include <vector>

#include "attnd/client.h"
#include "kernels/attention.h"

namespace attnd::fuzz {

// Every element of a Buffer is at first NaN: what may not be read, and what an
// answer did not write, shows.
struct Buffer {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: absent
  std::vector<uint8_t> bytes;

  Buffer() = default;
  Buffer(DType dtype, std::vector<int64_t> shape);

  explicit operator bool() const { return !shape.empty(); }
  int64_t size() const;  // elements
  double Get(int64_t i) const;
  void Set(int64_t i, double value);
  client::ConstTensor in() const;
  client::Tensor out();
};

struct FuzzProblem {
  uint64_t seed = 0, index = 0;
  std::string kind;  // what was drawn, in words

  client::Attention attention;
  client::Algorithm algorithm = client::Algorithm::kAuto;
  client::Plan plan = client::Plan::kAuto;
  // With padding; LAYOUT_PACKED: the longest sequence's lengths.
  int64_t batch = 0, q_len = 0, kv_len = 0;
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  Buffer q, k, v, bias, d_o, d_lse;

  DType o_dtype = DType::kF32;
  bool want_o = true, want_lse = true;
  // Backward, from what forward gave: needs both.
  bool backward = false;
  bool give_delta = false;  // in place of O
  bool larger = false;      // LSE is of more columns than these
  bool deterministic = false;
  bool want_dq = true, want_dk = true, want_dv = true;
  DType dq_dtype = DType::kF32, dk_dtype = DType::kF32, dv_dtype = DType::kF32;
  // Entries are independent and of ordinary size: statistics of errors hold.
  bool ordinary = false;
  bool spread = false;  // no P is near 1, where roundings have a direction
  bool alike = false;   // many entries, or many scores, are equal

  bool packed() const { return attention.layout == client::Layout::kPacked; }
  DType dtype() const { return q.dtype; }
  // Shapes in this problem's layout.
  std::vector<int64_t> TokenShape(bool of_q, int64_t dim) const;
  std::vector<int64_t> RowShape() const;
  int64_t QLenOf(int64_t b) const;
  int64_t KvLenOf(int64_t b) const;
  // One line: shapes, mask, scale, type, kind, and how to send it again.
  std::string Describe() const;
};

// The kernels' problems: one, or one for each sequence when packed. Points to
// the FuzzProblem and the buffers, which must outlive it.
class Problems {
 public:
  explicit Problems(const FuzzProblem& problem);
  Problems(const Problems&) = delete;
  Problems& operator=(const Problems&) = delete;

  size_t size() const { return problems_.size(); }
  const Problem& operator[](size_t n) const { return problems_[n]; }
  // The part of a tensor of this problem's layout that belongs to problem n.
  ConstTensorView Tokens(size_t n, const Buffer& tensor, bool of_q) const;
  ConstRowView Rows(size_t n, const Buffer& rows) const;

 private:
  const FuzzProblem& fuzz_;
  std::vector<Problem> problems_;
  std::vector<KvSegment> segments_;
  std::vector<int64_t> first_q_, first_kv_;  // tokens, when packed
};

// Whether a team's devices merge what their rows have over some columns with
// what they have over others.
bool Merges(client::Plan plan);

client::DType ToClient(DType dtype);
const char* Name(DType dtype);

}  // namespace attnd::fuzz

#endif  // ATTND_TESTS_SERVICE_FUZZ_PROBLEM_H_
