#ifndef ATTND_CLIENT_H_
#define ATTND_CLIENT_H_

// The attnd client: exact attention, forward and backward, computed by a
// server, on memory that the caller owns.
//
//   auto client = attnd::client::Client::Create("localhost:7411");
//   attnd::client::ForwardCall call;
//   call.q = {DType::kBF16, {batch, q_len, q_heads, head_dim}, q};
//   ...
//   call.o = {DType::kBF16, {batch, q_len, q_heads, value_dim}, o};
//   absl::StatusOr<Report> report = (*client)->Forward(call, {});
//
// Inputs are sent from the caller's memory and results are copied once, into
// the caller's memory. When a call completes, successful or not, the library
// and gRPC have let go of all of it. Calls may be of any size: large ones
// travel in chunks, over several connections where there are. Nothing of
// Protocol Buffers or gRPC is in this header.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/tls.h"

namespace attnd::client {

class Region;

enum class DType : uint8_t { kF32, kF16, kBF16 };
enum class Layout : uint8_t { kBshd, kBhsd, kPacked };
enum class Algorithm : uint8_t {
  kAuto,
  kNaive,
  kOnlineSoftmax,
  kFlashAttention1,
  kFlashAttention2,
};
// How the server shares a request out over a team of its devices, if it has one
// (the feature "plans").
enum class Plan : uint8_t {
  kAuto,       // what suits the request, which may be one device
  kOneDevice,  // any one
  kHeads,      // each has K/V heads of sequences, with all of their tokens
  kGather,     // each has tokens of every sequence, and fetches what it lacks
  // For sequences whose keys and values fit no device: each has tokens of every
  // sequence, and keys and values go round in blocks from one to the next.
  kRing,     // one run of tokens each
  kStriped,  // every N-th token of N devices
  kZigzag,   // two runs each, one as far from the front as one from the back
  // For few rows over many keys: each has all rows of every sequence and some
  // of its keys and values, and results over these are merged.
  kKv,
};
enum class Priority : uint8_t { kLow, kNormal, kHigh };

// How a call travels.
enum class TransportKind : uint8_t {
  // kRegion for what lies in a region that the client has. For the rest kStream
  // from 8 MiB of inputs and outputs on, and where a message would be
  // larger than max_message_bytes; otherwise, and with a server that lacks
  // Exchange, kUnary.
  kAuto,
  kUnary,   // one message each way
  kStream,  // an Exchange: chunks, over one or more connections
  // By reference, in regions (attnd/region.h), for which a unary call asks. In
  // CallOptions: every tensor must lie in one. In a Report: of those that
  // travelled by message there was none, or they were few.
  kRegion,
};

int64_t SizeOf(DType dtype);  // bytes of one element

// A contiguous row-major tensor in the caller's memory; `data` holds
// product(shape) * SizeOf(dtype) bytes. An empty shape: the tensor is absent.
struct ConstTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};
struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  void* data = nullptr;
};

struct Mask {
  bool causal = false;
  int64_t window_left = -1;  // -1: unlimited
  int64_t window_right = -1;
};

// What forward and backward have in common; see attn/v1/attention.proto.
struct Attention {
  Layout layout = Layout::kBshd;
  std::optional<float> scale;    // unset: 1 / sqrt(head_dim)
  std::optional<float> softcap;  // unset: none
  Mask mask;
  std::vector<int64_t> q_lens, kv_lens;    // empty, or one per sequence
  std::vector<int64_t> q_start, kv_start;  // empty, one, or one per sequence
  int64_t q_stride = 1, kv_stride = 1;
};

// Shapes as for Layout::kBshd. Absent outputs are neither computed nor sent.
struct ForwardCall {
  ConstTensor q;  // [batch, q_len, q_heads, head_dim], f32, f16 or bf16
  ConstTensor k;  // [batch, kv_len, kv_heads, head_dim], as q
  ConstTensor v;  // [batch, kv_len, kv_heads, value_dim], as q
  ConstTensor
      bias;  // optional: [1|batch, 1|q_heads, q_len, kv_len], f32 or as q
  Attention attention;
  Algorithm algorithm = Algorithm::kAuto;
  Plan plan = Plan::kAuto;
  Tensor o;    // [batch, q_len, q_heads, value_dim], as q or f32
  Tensor lse;  // [batch, q_heads, q_len], f32
};

struct BackwardCall {
  ConstTensor q, k, v, bias;  // as in ForwardCall
  Attention attention;
  ConstTensor d_o;    // [batch, q_len, q_heads, value_dim], as q
  ConstTensor lse;    // [batch, q_heads, q_len], f32: the forward's, global
  ConstTensor o;      // as d_o's shape, as q or f32; or
  ConstTensor delta;  // [batch, q_heads, q_len], f32: rowsum(d_o * o)
  ConstTensor d_lse;  // optional: [batch, q_heads, q_len], f32
  Algorithm algorithm = Algorithm::kAuto;
  bool deterministic = false;
  Plan plan = Plan::kAuto;
  Tensor dq, dk, dv;  // shaped as q, k and v; as q or f32
};

struct CallOptions {
  // The whole call, retries included, ends by then; see also
  // ClientOptions::keepalive_time.
  absl::Duration timeout = absl::InfiniteDuration();
  Priority priority = Priority::kNormal;
  TransportKind transport = TransportKind::kAuto;
  // What the caller calls the call in its own log: the server's has it too. 1
  // to 128 of letters, digits and "._:-"; empty: the server makes one up, which
  // errors have (RequestIdOf).
  std::string request_id = {};
  // The caller's span, a W3C Trace Context
  // (https://www.w3.org/TR/trace-context/#traceparent-header), as
  // "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": the server's
  // span of the call becomes its child. Empty: the call is in no trace.
  std::string traceparent = {};
};

// How a team shared the request, with those that ran in its batch.
struct PlanReport {
  struct Device {
    std::string device;   // e.g. "cuda:1"
    absl::Duration busy;  // its kernels' time
  };

  Plan plan = Plan::kAuto;      // kAuto: one that this library does not know
  std::string why;              // this one, for people
  std::vector<Device> devices;  // that took part
  absl::Duration predicted;     // by the server: what compute was to be
};

// How the server ran a request, and what the client saw.
struct Report {
  std::string device;
  std::string kernel;
  Algorithm algorithm = Algorithm::kAuto;
  int batch_requests = 0;
  double flops = 0;
  // The server's phases; `receive` of an Exchange only.
  absl::Duration receive, queue, upload, compute, download;
  std::optional<PlanReport> plan;  // unset: no team ran it
  absl::Duration total;            // as the caller saw it
  int attempts = 1;
  TransportKind transport = TransportKind::kUnary;  // never kAuto
  int streams = 1;                                  // that carried it
  // Why tensors that lie in a region were sent all the same; else empty.
  std::string fallback;
};

struct Device {
  std::string kind;
  int index = 0;
  std::string name;
  int64_t memory_bytes = 0;
  bool in_service = false;
};

struct ServerInfo {
  std::string server_instance_id;
  std::string version;
  std::vector<std::string> features;
  std::vector<Device> devices;
  int64_t max_message_bytes = 0;
  int64_t memory_limit_bytes = 0;
  int64_t max_queue_requests = 0;
  double max_queue_flops = 0;
  double max_request_flops = 0;
  int64_t max_head_dim = 0;
  int64_t max_request_sequences = 0;  // entries of q_lens and its kin
  int max_transfer_streams = 0;       // 0: the server lacks Exchange
  int64_t preferred_chunk_bytes = 0;
  int64_t region_bytes = 0;  // the largest lease; 0: none
};

struct ClientOptions {
  // Security. Without these anyone between the two ends of a TCP connection
  // reads and changes what passes, and the server knows an address alone.
  TlsOptions tls;
  // What the server knows the caller by: a token of printable ASCII without
  // spaces, of 4096 bytes at most, or a regular file that has one, space and
  // ends of lines around it aside. Each call says it ("authorization: Bearer
  // ..."). A file that is replaced counts for the calls that begin two seconds
  // later; one that is no good leaves the token as it was. At most one of the
  // two.
  std::string token;
  std::string token_file;
  // Create refuses a token that would cross a network without TLS: to any
  // target but a unix socket, an address of loopback and "localhost". True:
  // it may.
  bool insecure_token = false;
  // Behaviour.
  // The largest message accepted, and the largest unary request sent. What an
  // Exchange sends has at most 4 MiB, whatever the tensors have; it asks for
  // chunks of less where this is less than twice that.
  int64_t max_message_bytes = (int64_t{1} << 31) - 1;
  // A silent peer is given up after keepalive_time + keepalive_timeout. While
  // a write to it is stuck nothing else ends a call: over TCP the write is
  // given up keepalive_timeout after the peer's last sign of life, on a unix
  // socket keepalive_timeout (and 0.25 s at most) after the call's deadline or
  // its cancelling, and what else goes over that connection ends UNAVAILABLE;
  // so give calls over unix sockets a deadline. Pings go out every
  // keepalive_time, at least 1 s: a server closes the connection (GOAWAY,
  // "too_many_pings") of a client that pings more often than it likes, which
  // for attnd is four times a second.
  absl::Duration keepalive_time = absl::Seconds(10);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  // Attempts per call. Only UNAVAILABLE, and RESOURCE_EXHAUSTED with a retry
  // delay from the server, are tried again.
  int max_attempts = 4;
  absl::Duration initial_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(5);
  // Retries may not exceed this share of recent calls, after a first allowance
  // of ten.
  double retry_budget = 0.2;
  // Performance.
  // Calls take turns on them; each carries 1 to 3 GB/s. A large call uses one
  // for every 16 MiB, at most 8, and no more than the server allows. The first
  // large call over a connection starts a thread for it; those of several wait
  // for each other unless the environment's GRPC_POLL_STRATEGY was set to poll
  // before the process used gRPC (client/README.md).
  int connections = 1;
  int executor_threads = 1;  // they run asynchronous callbacks
  // How long a synchronous call looks for its answer again and again before its
  // thread sleeps, in every attempt. Waking a thread up takes 5 to 30 us, more
  // the longer it has slept; whoever has a processor to spare saves them where
  // answers take less than this. A call whose tensors all lie in regions looks
  // for 200 us at least once the server says that the answer is near.
  absl::Duration busy_poll = absl::ZeroDuration();

  absl::Status Validate() const;
};

// The id under which the server's log, and its page /statusz, have the call
// that ended with `status`. Empty: the server did not say, as where it was not
// reached.
std::string RequestIdOf(const absl::Status& status);

// Thread-safe. Destruction waits for its calls, so never from a callback.
//
// Every call returns the server's status, or: INVALID_ARGUMENT (naming the
// field) when the call's tensors disagree with their sizes, or are too large to
// send where the call is to be unary, or lie on a device where their bytes
// would have to travel, or in no region where all must (kRegion), or an enum
// holds none of its values, or an id in CallOptions is none,
// FAILED_PRECONDITION when such a tensor's region is no longer leased,
// UNIMPLEMENTED when they are too large for all that the server can do,
// UNAVAILABLE when there is no connection to be had, which says what to check
// where TLS is the cause, DEADLINE_EXCEEDED, CANCELLED, INTERNAL (naming the
// field) when a response does not fit the memory given for it.
class Client {
 public:
  using Callback = std::function<void(absl::StatusOr<Report>)>;

  // Connects on first use. `target` as gRPC writes them: "host:port",
  // "unix:/path", "unix-abstract:name". INVALID_ARGUMENT, naming the option:
  // bad ones, also together with the target, or a file that they name that
  // cannot be read or does not hold what it should.
  static absl::StatusOr<std::unique_ptr<Client>> Create(
      const std::string& target, const ClientOptions& options = {});
  virtual ~Client() = default;

  virtual absl::StatusOr<Report> Forward(const ForwardCall& call,
                                         const CallOptions& options) = 0;
  virtual absl::StatusOr<Report> Backward(const BackwardCall& call,
                                          const CallOptions& options) = 0;

  // The call's tensors are used until `done` is called, exactly once, on the
  // client's executor, where it may block. Never blocks; starts no thread but
  // those of ClientOptions::connections.
  // The returned function cancels the call; calling it late does nothing.
  virtual std::function<void()> ForwardAsync(const ForwardCall& call,
                                             const CallOptions& options,
                                             Callback done) = 0;
  virtual std::function<void()> BackwardAsync(const BackwardCall& call,
                                              const CallOptions& options,
                                              Callback done) = 0;

  // From now on calls' tensors that lie in `region` go by reference, and keep
  // it until they have ended. Where the server does not know it (it is another,
  // or older than regions), their bytes are sent, and Report::fallback says so;
  // what lies on a device has none to send, so such calls fail. A region that
  // the server did not know is not tried again until it is added again.
  virtual void AddRegion(std::shared_ptr<Region> region) = 0;
  // Calls that begin from now on do without it.
  virtual void RemoveRegion(const std::shared_ptr<Region>& region) = 0;

  virtual absl::StatusOr<ServerInfo> GetServerInfo(
      const CallOptions& options) = 0;
  // OK when the server (or `service` on it) reports SERVING.
  virtual absl::Status CheckHealth(const std::string& service,
                                   const CallOptions& options) = 0;
};

}  // namespace attnd::client

#endif  // ATTND_CLIENT_H_
