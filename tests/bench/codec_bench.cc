// The codec's own time: the smallest request (one query, one key, D 64), and
// 3 x 16 MiB as gRPC delivers it, in slices. No payload byte is touched.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"
#include "base/field_error.h"
#include "benchmark/benchmark.h"
#include "proto/wire/codec.h"
#include "proto/wire/status.h"

namespace attnd::wire {
namespace {

namespace v1 = ::attn::v1;

struct Request {
  explicit Request(size_t tensor_bytes) : bytes(tensor_bytes, 'x') {
    for (v1::Tensor* t :
         {header.mutable_q(), header.mutable_k(), header.mutable_v()}) {
      t->set_dtype(v1::DATA_TYPE_F32);
      for (int64_t dim :
           {int64_t{1}, int64_t(tensor_bytes / 256), int64_t{1}, int64_t{64}}) {
        t->add_shape(dim);
      }
    }
    header.mutable_attention()->mutable_mask()->set_causal(true);
    header.mutable_lse()->set_want(true);
    header.mutable_options()->set_priority(v1::PRIORITY_NORMAL);
    for (int field = 1; field <= 3; ++field) data.push_back({field, {bytes}});
  }

  std::string Encoded() const {
    std::string whole;
    const auto pieces = Encode(header, data);
    for (const Piece& piece : *pieces) {
      whole += piece.owned;
      whole.append(piece.borrowed.data(), piece.borrowed.size());
    }
    return whole;
  }

  std::string bytes;
  v1::ForwardRequest header;
  std::vector<TensorData> data;
};

void BM_Encode(benchmark::State& state) {
  const Request request(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(Encode(request.header, request.data));
  }
}
BENCHMARK(BM_Encode)->Arg(256)->Arg(16 << 20);

void BM_Decode(benchmark::State& state) {
  const std::string bytes = Request(state.range(0)).Encoded();
  std::vector<absl::string_view> fragments;
  for (size_t at = 0; at < bytes.size(); at += state.range(1)) {
    fragments.push_back(absl::string_view(bytes).substr(at, state.range(1)));
  }
  for (auto _ : state) {
    v1::ForwardRequest header;
    std::vector<TensorData> data;
    benchmark::DoNotOptimize(
        Decode(fragments, UnknownFields::kRefuse, header, data));
  }
}
BENCHMARK(BM_Decode)
    ->ArgNames({"tensor", "fragment"})
    ->Args({256, 1 << 20})
    ->Args({256, 1})
    ->Args({16 << 20, 56 << 10});

// What generated code takes for the same small message: the yardstick.
void BM_GeneratedDecode(benchmark::State& state) {
  const std::string bytes = Request(state.range(0)).Encoded();
  for (auto _ : state) {
    v1::ForwardRequest request;
    benchmark::DoNotOptimize(request.ParseFromString(bytes));
  }
}
BENCHMARK(BM_GeneratedDecode)->Arg(256)->Arg(16 << 20);

void BM_GeneratedEncode(benchmark::State& state) {
  v1::ForwardRequest request;
  request.ParseFromString(Request(state.range(0)).Encoded());
  for (auto _ : state) benchmark::DoNotOptimize(request.SerializeAsString());
}
BENCHMARK(BM_GeneratedEncode)->Arg(256)->Arg(16 << 20);

void BM_RefuseUnknownField(benchmark::State& state) {
  std::string bytes = Request(256).Encoded() + "\x88\x06\x01";  // field 97
  const absl::string_view fragment = bytes;
  for (auto _ : state) {
    v1::ForwardRequest header;
    std::vector<TensorData> data;
    benchmark::DoNotOptimize(
        Decode({fragment}, UnknownFields::kRefuse, header, data));
  }
}
BENCHMARK(BM_RefuseUnknownField);

void BM_StatusRoundTrip(benchmark::State& state) {
  const absl::Status status = FieldError("k.shape", "has 3 dimensions, not 4");
  for (auto _ : state) {
    absl::Status read;
    benchmark::DoNotOptimize(DecodeStatus(EncodeStatus(status), read));
  }
}
BENCHMARK(BM_StatusRoundTrip);

}  // namespace
}  // namespace attnd::wire

BENCHMARK_MAIN();
