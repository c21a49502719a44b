// The codec's own time: the smallest request (one query, one key, D 64), and
// 3 x 16 MiB as gRPC delivers it, in slices. No payload byte is touched.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attn/v1/attention.pb.h"
#include "base/field_error.h"
#include "benchmark/benchmark.h"
#include "proto/wire/codec.h"
#include "proto/wire/message_arena.h"
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

// A call whose tensors are in a region: all of it is header.
v1::ForwardRequest RequestInRegion() {
  v1::ForwardRequest request = Request(256).header;
  int64_t offset = 0;
  for (v1::RegionSlice* slice : {request.mutable_q()->mutable_region(),
                                 request.mutable_k()->mutable_region(),
                                 request.mutable_v()->mutable_region(),
                                 request.mutable_o()->mutable_region()}) {
    slice->set_region(std::string(16, 'r'));
    slice->set_offset(offset += 16 << 20);
  }
  return request;
}

v1::ForwardResponse ResponseInRegion() {
  v1::ForwardResponse response;
  *response.mutable_o() = RequestInRegion().q();
  v1::ExecutionReport& report = *response.mutable_report();
  report.set_device("0 NVIDIA H100 80GB HBM3");
  report.set_algorithm(v1::ALGORITHM_FLASH_ATTENTION_2);
  report.set_kernel("sm90_forward_bf16_d128");
  report.set_batch_requests(1);
  report.set_flops(1.4e11);
  report.mutable_phases()->set_queue_ns(10'000);
  report.mutable_phases()->set_compute_ns(250'000);
  return response;
}

template <typename Message>
void DecodeInRegion(benchmark::State& state, const Message& message,
                    UnknownFields unknown) {
  const std::string bytes = message.SerializeAsString();
  const absl::string_view fragment = bytes;
  for (auto _ : state) {
    MessageArena arena;
    auto& header = arena.New<Message>();
    std::vector<TensorData> data;
    benchmark::DoNotOptimize(Decode({fragment}, unknown, header, data));
  }
}

void BM_DecodeRequestInRegion(benchmark::State& state) {
  DecodeInRegion(state, RequestInRegion(), UnknownFields::kRefuse);
}
BENCHMARK(BM_DecodeRequestInRegion);

void BM_DecodeResponseInRegion(benchmark::State& state) {
  DecodeInRegion(state, ResponseInRegion(), UnknownFields::kIgnore);
}
BENCHMARK(BM_DecodeResponseInRegion);

void BM_EncodeRequestInRegion(benchmark::State& state) {
  const v1::ForwardRequest request = RequestInRegion();
  for (auto _ : state) benchmark::DoNotOptimize(Encode(request, {}));
}
BENCHMARK(BM_EncodeRequestInRegion);

void BM_GeneratedDecodeInRegion(benchmark::State& state) {
  const std::string bytes = RequestInRegion().SerializeAsString();
  for (auto _ : state) {
    MessageArena arena;
    benchmark::DoNotOptimize(
        arena.New<v1::ForwardRequest>().ParseFromString(bytes));
  }
}
BENCHMARK(BM_GeneratedDecodeInRegion);

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
