#include "client/attnctl/commands.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/tensor_size.h"

namespace attnd::client {
namespace {

using Shape = std::vector<int64_t>;

// Loads the files of one request, keeps their memory in `tensors`, which
// outlives it, and the first error.
class Loader {
 public:
  explicit Loader(std::deque<HostTensor>& tensors) : tensors_(tensors) {}

  // As the file has it, or as `dtype`. An empty path: an absent tensor.
  ConstTensor Load(const std::string& path, std::optional<DType> dtype) {
    return Keep(path, [&] { return LoadTensor(path, dtype); });
  }
  ConstTensor LoadOrF32(const std::string& path, DType dtype) {
    return Keep(path, [&] { return LoadTensorOrF32(path, dtype); });
  }

  void Integers(const char* flag, const std::string& value, Shape& to) {
    if (!status_.ok()) return;
    absl::StatusOr<Shape> values = LoadIntegers(flag, value);
    status_.Update(values.status());
    if (values.ok()) to = *std::move(values);
  }

  const absl::Status& status() const { return status_; }

 private:
  template <typename F>
  ConstTensor Keep(const std::string& path, F load) {
    if (path.empty() || !status_.ok()) return {};
    absl::StatusOr<HostTensor> tensor = load();
    status_.Update(tensor.status());
    if (!tensor.ok()) return {};
    tensors_.push_back(*std::move(tensor));
    return tensors_.back().view();
  }

  std::deque<HostTensor>& tensors_;
  absl::Status status_;
};

Attention LoadAttention(const RequestFlags& flags, Loader& loader) {
  Attention attention;
  attention.layout = flags.layout;
  attention.scale = flags.scale;
  attention.softcap = flags.softcap;
  attention.mask = {flags.causal, flags.window_left, flags.window_right};
  loader.Integers("q_lens", flags.q_lens, attention.q_lens);
  loader.Integers("kv_lens", flags.kv_lens, attention.kv_lens);
  loader.Integers("q_start", flags.q_start, attention.q_start);
  loader.Integers("kv_start", flags.kv_start, attention.kv_start);
  attention.q_stride = flags.q_stride;
  attention.kv_stride = flags.kv_stride;
  return attention;
}

// The outputs that are to be written or compared; all when none is.
class Wanted {
 public:
  explicit Wanted(std::vector<OutputResult>& outputs) : outputs_(outputs) {}

  void Add(const char* name, const std::string& path,
           const std::string& expect_path, DType dtype, const Shape& shape) {
    outputs_.push_back(
        {name, path, expect_path, PoisonedTensor(dtype, shape), std::nullopt});
  }

  void DropUnused() {
    std::vector<OutputResult> used;
    for (OutputResult& output : outputs_) {
      if (!output.path.empty() || !output.expect_path.empty()) {
        used.push_back(std::move(output));
      }
    }
    if (!used.empty()) outputs_ = std::move(used);
  }

  Tensor Find(const char* name) const {
    for (OutputResult& output : outputs_) {
      if (output.name == name) return output.tensor.mutable_view();
    }
    return {};
  }

 private:
  std::vector<OutputResult>& outputs_;
};

absl::Status FinishOutput(OutputResult& output) {
  if (!output.path.empty()) {
    if (absl::Status status = SaveTensor(output.path, output.tensor);
        !status.ok()) {
      return status;
    }
  }
  if (output.expect_path.empty()) return absl::OkStatus();
  const absl::StatusOr<HostTensor> expected =
      LoadTensorOrF32(output.expect_path, output.tensor.dtype);
  if (!expected.ok()) return expected.status();
  const absl::StatusOr<Difference> difference =
      Compare(output.tensor, *expected);
  if (!difference.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(output.expect_path, ": ", difference.status().message()));
  }
  output.difference = *difference;
  return absl::OkStatus();
}

std::string Describe(const char* command, const ConstTensor& q,
                     const ConstTensor& k) {
  return absl::StrCat(command, ": q ", ShapeText(q.shape), ", k ",
                      ShapeText(k.shape), ", ", Name(q.dtype));
}

}  // namespace

absl::StatusOr<Request> LoadForward(const RequestFlags& flags) {
  Request request;
  Loader loader(request.inputs);
  ForwardCall call;
  call.q = loader.Load(flags.q, flags.dtype);
  call.k = loader.Load(flags.k, flags.dtype);
  call.v = loader.Load(flags.v, flags.dtype);
  call.bias = loader.LoadOrF32(flags.bias, call.q.dtype);
  call.attention = LoadAttention(flags, loader);
  call.algorithm = flags.algorithm;
  call.plan = flags.plan;
  if (!loader.status().ok()) return loader.status();

  Wanted wanted(request.outputs);
  wanted.Add("o", flags.o, flags.expect_o,
             flags.out_dtype.value_or(call.q.dtype),
             OutputShape(call.q, call.v));
  wanted.Add("lse", flags.lse, flags.expect_lse, DType::kF32,
             LseShape(call.q, flags.layout));
  wanted.DropUnused();
  call.o = wanted.Find("o");
  call.lse = wanted.Find("lse");
  request.what = Describe("forward", call.q, call.k);
  request.call = std::move(call);
  return request;
}

absl::StatusOr<Request> LoadBackward(const RequestFlags& flags) {
  Request request;
  Loader loader(request.inputs);
  BackwardCall call;
  call.q = loader.Load(flags.q, flags.dtype);
  call.k = loader.Load(flags.k, flags.dtype);
  call.v = loader.Load(flags.v, flags.dtype);
  call.bias = loader.LoadOrF32(flags.bias, call.q.dtype);
  call.d_o = loader.Load(flags.d_o, flags.dtype);
  call.lse = loader.Load(flags.lse_in, DType::kF32);
  call.o = loader.LoadOrF32(flags.o_in, call.q.dtype);
  call.delta = loader.Load(flags.delta, DType::kF32);
  call.d_lse = loader.Load(flags.d_lse, DType::kF32);
  call.attention = LoadAttention(flags, loader);
  call.algorithm = flags.algorithm;
  call.plan = flags.plan;
  call.deterministic = flags.deterministic;
  if (!loader.status().ok()) return loader.status();

  Wanted wanted(request.outputs);
  const DType dtype = flags.out_dtype.value_or(call.q.dtype);
  wanted.Add("dq", flags.dq, flags.expect_dq, dtype, call.q.shape);
  wanted.Add("dk", flags.dk, flags.expect_dk, dtype, call.k.shape);
  wanted.Add("dv", flags.dv, flags.expect_dv, dtype, call.v.shape);
  wanted.DropUnused();
  call.dq = wanted.Find("dq");
  call.dk = wanted.Find("dk");
  call.dv = wanted.Find("dv");
  request.what = Describe("backward", call.q, call.k);
  request.call = std::move(call);
  return request;
}

absl::StatusOr<Report> Send(Client& client, Request& request,
                            const CallOptions& options) {
  const auto* forward = std::get_if<ForwardCall>(&request.call);
  return forward != nullptr
             ? client.Forward(*forward, options)
             : client.Backward(std::get<BackwardCall>(request.call), options);
}

absl::Status Finish(Request& request) {
  absl::Status status;
  for (OutputResult& output : request.outputs) {
    status.Update(FinishOutput(output));
  }
  return status;
}

}  // namespace attnd::client
