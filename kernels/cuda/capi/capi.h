#ifndef ATTND_KERNELS_CUDA_CAPI_CAPI_H_
#define ATTND_KERNELS_CUDA_CAPI_CAPI_H_

// Forward and backward on a GPU for callers that speak C, such as a benchmark
// in Python: libattnd_kernels_c. All memory belongs to the caller, but for a
// plan's own workspace.
//
// Functions return 0, or a code of absl::StatusCode with its text in
// attnd_last_error(). Calls on different plans may run at the same time; calls
// on one plan may not. The device of the plan's stream must be current.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTND_API __attribute__((visibility("default")))

typedef enum AttndDType {
  ATTND_F32 = 0,
  ATTND_F16 = 1,
  ATTND_BF16 = 2,
} AttndDType;

typedef enum AttndAlgorithm {
  ATTND_AUTO = 0,
  ATTND_NAIVE = 1,  // backward as its equations have it
  ATTND_ONLINE_SOFTMAX = 2,
  ATTND_FLASH_ATTENTION_1 = 3,
  ATTND_FLASH_ATTENTION_2 = 4,
  ATTND_NAIVE_AUTOGRAD = 5,  // backward alone: naive, each of forward's steps
                             // differentiated, in reverse
  ATTND_ANY_GPU = 6,  // the fused kernels that any GPU has, on a Hopper too
} AttndAlgorithm;

// [batch, tokens, heads, dim] in device memory, dim contiguous, strides in
// elements.
typedef struct AttndTensor {
  void* data;
  int64_t batch_stride;
  int64_t token_stride;
  int64_t head_stride;
} AttndTensor;

// One batch of sequences of one length. The rows stand at the end: the last row
// of Q at the last token of K.
typedef struct AttndForwardProblem {
  int64_t batch;
  int64_t q_len;
  int64_t kv_len;
  int64_t q_heads;  // a multiple of kv_heads
  int64_t kv_heads;
  int64_t head_dim;   // 1..256, of Q and K
  int64_t value_dim;  // 1..256, of V and O
  AttndTensor q;      // [batch, q_len, q_heads, head_dim]
  AttndTensor k;      // [batch, kv_len, kv_heads, head_dim]
  AttndTensor v;      // [batch, kv_len, kv_heads, value_dim]
  AttndTensor o;      // [batch, q_len, q_heads, value_dim]
  float* lse;         // [batch, q_heads, q_len], contiguous; or NULL
  int64_t left;       // columns seen before a row's own; -1: all
  int64_t right;      // and after it; -1: all
  int32_t causal;     // nothing after its own
  int32_t dtype;      // AttndDType, of Q, K, V and O
  float scale;        // of scores
} AttndForwardProblem;

// Its gradients, from that of O. All tensors are of the same type.
typedef struct AttndBackwardProblem {
  AttndForwardProblem forward;  // as it was run; O and LSE are read
  AttndTensor d_o;              // [batch, q_len, q_heads, value_dim]
  // Without data: not computed.
  AttndTensor dq;  // [batch, q_len, q_heads, head_dim]
  AttndTensor dk;  // [batch, kv_len, kv_heads, head_dim]
  AttndTensor dv;  // [batch, kv_len, kv_heads, value_dim]
} AttndBackwardProblem;

// What one call enqueued, and what it took.
typedef struct AttndEnqueued {
  int32_t kernels;
  int32_t copies;        // host to device
  int64_t host_ns;       // that the calling thread spent
  int64_t device_bytes;  // of the plan's workspace now
} AttndEnqueued;

// Problems that run as one group on one stream, with a workspace: all forward,
// or all backward.
typedef struct AttndPlan AttndPlan;

// Copies the array; what it points to must outlive the plan. `stream` is a
// cudaStream_t. INVALID_ARGUMENT; UNIMPLEMENTED: no kernel for it. Enqueues
// nothing.
ATTND_API int attnd_plan_create(const AttndForwardProblem* problems,
                                int32_t count, int32_t algorithm, void* stream,
                                AttndPlan** plan);

// The same for backward. `deterministic`: results are the same bits each time.
ATTND_API int attnd_backward_plan_create(const AttndBackwardProblem* problems,
                                         int32_t count, int32_t algorithm,
                                         int32_t deterministic, void* stream,
                                         AttndPlan** plan);

// Enqueues the group in one call, or its problems one by one in as many calls;
// nothing is waited for. The stream's device must be the calling thread's.
// `enqueued` may be NULL. May be captured into a graph once the plan has run
// and attnd_plan_recycle has been called; a plan that was captured must not be
// enqueued or recycled again, as the graph copies from it.
ATTND_API int attnd_plan_enqueue(AttndPlan* plan, AttndEnqueued* enqueued);
ATTND_API int attnd_plan_enqueue_each(AttndPlan* plan, AttndEnqueued* enqueued);

// Everything enqueued so far is over: what it took of host memory is free.
ATTND_API void attnd_plan_recycle(AttndPlan* plan);

// Everything enqueued must be over, and every graph that captured it gone.
ATTND_API void attnd_plan_destroy(AttndPlan* plan);

// Why this thread's last failing call failed; valid until the next.
ATTND_API const char* attnd_last_error(void);

#ifdef __cplusplus
}
#endif

#endif  // ATTND_KERNELS_CUDA_CAPI_CAPI_H_
