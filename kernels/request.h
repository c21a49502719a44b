#ifndef ATTND_KERNELS_REQUEST_H_
#define ATTND_KERNELS_REQUEST_H_

// From a described request to problems: the one place that validates. What
// passes here is safe to allocate for and to hand to any backend.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/attention.h"
#include "kernels/plan_kind.h"

namespace attnd {

// BSHD [batch, tokens, heads, dim], BHSD [batch, heads, tokens, dim], or
// packed [total_tokens, heads, dim] with q_lens and kv_lens.
enum class Layout : uint8_t { kBshd, kBhsd, kPacked };

// Every tensor a request or a response can carry. O and LSE are outputs of
// forward and inputs of backward.
enum class TensorId : uint8_t {
  kQ,
  kK,
  kV,
  kBias,
  kO,
  kLse,
  kDO,
  kDelta,
  kDLse,
  kDQ,
  kDK,
  kDV,
};
inline constexpr int kTensorIds = 12;
// The name of its field on the wire: "q", "d_o", "lse", ...
absl::string_view TensorName(TensorId id);

struct TensorSpec {
  DType dtype = DType::kF32;
  absl::InlinedVector<int64_t, 4> shape;
};

struct OutputSpec {
  bool want = true;
  std::optional<DType> dtype;  // as Q (LSE: f32) or f32; unset: as Q
};

template <typename T>
class PerTensor {
 public:
  T& operator[](TensorId id) { return values_[static_cast<size_t>(id)]; }
  const T& operator[](TensorId id) const {
    return values_[static_cast<size_t>(id)];
  }

 private:
  std::array<T, kTensorIds> values_{};
};

// A request as it was asked for. Nothing in it is trusted.
struct RequestSpec {
  Op op = Op::kForward;
  Layout layout = Layout::kBshd;
  PerTensor<std::optional<TensorSpec>> inputs;
  PerTensor<OutputSpec> outputs;  // O and LSE, or dQ, dK and dV
  std::optional<float> scale;     // unset: 1 / sqrt(head_dim)
  std::optional<float> softcap;
  Mask mask;
  std::vector<int64_t> q_lens, kv_lens;    // empty, or one per sequence
  std::vector<int64_t> q_start, kv_start;  // empty, one, or one per sequence
  int64_t q_stride = 1, kv_stride = 1;
  Algorithm algorithm = Algorithm::kAuto;
  bool deterministic = false;
  PlanKind plan = PlanKind::kAuto;
};

// The sizes that a valid request's tensors agree on. Packed: q_len and kv_len
// are the longest sequence's, total_q and total_kv the tensors' tokens;
// otherwise totals are batch * len.
struct Sizes {
  int64_t batch = 0;  // sequences
  int64_t q_len = 0, kv_len = 0;
  int64_t total_q = 0, total_kv = 0;
  int64_t q_heads = 0, kv_heads = 0;
  int64_t head_dim = 0, value_dim = 0;
};

// Where each tensor's bytes are; inputs are only read.
using TensorPointers = PerTensor<std::byte*>;

// A request's problems over given memory: one problem, or one per sequence
// when packed. Self-contained apart from the memory, the Request and the token.
struct BoundRequest {
  std::vector<KvSegment> segments;   // one per problem; the problems point here
  std::vector<ForwardArgs> forward;  // filled for Op::kForward
  std::vector<BackwardArgs> backward;  // filled for Op::kBackward
};

// A validated request. Immutable, thread-safe.
class Request {
 public:
  struct Tensor {
    bool present = false;  // given, or for outputs: wanted
    TensorSpec spec;
    int64_t bytes = 0;  // contiguous
  };

  // INVALID_ARGUMENT: a FieldError that names the field by its path on the
  // wire ("k.shape", "attention.q_lens"). Allocates no more than O(what the
  // spec itself holds). Refused as well: both O and delta, inputs that the
  // operation does not take, and a request that wants no output. Accepted: any
  // size of 0, where heads are 0 in Q and K alike or in neither.
  static absl::StatusOr<std::unique_ptr<const Request>> Create(
      RequestSpec spec);

  const RequestSpec& spec() const { return spec_; }
  const Tensor& input(TensorId id) const { return inputs_[id]; }
  const Tensor& output(TensorId id) const { return outputs_[id]; }
  int64_t input_bytes() const { return input_bytes_; }    // sum over inputs
  int64_t output_bytes() const { return output_bytes_; }  // sum over outputs
  const Sizes& sizes() const { return sizes_; }
  // Floating-point operations: 2 a multiply-add, masked-out pairs not counted,
  // backward 2.5 x forward.
  double flops() const { return flops_; }

  // Problems over `memory`; of 0 sequences when no output has an element.
  // Pointers of absent tensors are ignored; with every pointer null this
  // describes the shapes, e.g. for Backend::Supports.
  std::unique_ptr<BoundRequest> Bind(const TensorPointers& memory,
                                     const CancelToken* cancel) const;

 private:
  Request() = default;

  RequestSpec spec_;  // its vectors are what bound problems point to
  Sizes sizes_;
  PerTensor<Tensor> inputs_, outputs_;
  int64_t input_bytes_ = 0, output_bytes_ = 0;
  double flops_ = 0;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_REQUEST_H_
