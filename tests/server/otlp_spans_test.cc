#include "server/telemetry/otlp_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "opentelemetry/exporters/memory/in_memory_span_data.h"
#include "opentelemetry/exporters/memory/in_memory_span_exporter_factory.h"
#include "opentelemetry/sdk/trace/simple_processor_factory.h"

namespace attnd::server {
namespace {

namespace memory = opentelemetry::exporter::memory;

constexpr char kParent[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

template <typename Id>
std::string Hex(const Id& id) {
  char text[2 * Id::kSize];
  id.ToLowerBase16(text);
  return std::string(text, sizeof(text));
}

class OtlpSpansTest : public ::testing::Test {
 protected:
  static CallRecord Call(const std::string& traceparent) {
    CallRecord call;
    call.method = Method::kBackward;
    call.status = absl::InternalError("fell over");
    call.code = absl::StatusCode::kInternal;
    call.total = absl::Milliseconds(20);
    call.ids = CallIds("job-7", traceparent);
    call.run.emplace();
    call.run->phases.compute = absl::Milliseconds(10);
    call.run->device = "cuda:0";
    return call;
  }
  auto Sent() { return data_->GetSpans(); }

  std::shared_ptr<memory::InMemorySpanData> data_;
  std::unique_ptr<SpanSink> spans_ = SpansThrough(
      opentelemetry::sdk::trace::SimpleSpanProcessorFactory::Create(
          memory::InMemorySpanExporterFactory::Create(data_)),
      "instance");
};

TEST_F(OtlpSpansTest, ASpanIsTheClientsChildAndTheOneThatItWasTold) {
  const CallRecord call = Call(kParent);
  spans_->Add(call);
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 1);
  const auto& span = *sent[0];
  EXPECT_EQ(span.GetName(), "attn.v1.AttentionService/Backward");
  EXPECT_EQ(Hex(span.GetTraceId()), wire::TraceIdOf(*call.ids.parent()));
  EXPECT_EQ(Hex(span.GetParentSpanId()), wire::SpanIdOf(*call.ids.parent()));
  EXPECT_EQ(Hex(span.GetSpanId()), wire::SpanIdOf(call.ids.span()));
  EXPECT_EQ(span.GetDuration(), std::chrono::milliseconds(20));
  EXPECT_EQ(span.GetStatus(), opentelemetry::trace::StatusCode::kError);
  const auto& attributes = span.GetAttributes();
  EXPECT_EQ(std::get<std::string>(attributes.at("attnd.request_id")), "job-7");
  EXPECT_EQ(std::get<int>(attributes.at("rpc.grpc.status_code")), 13);
  EXPECT_EQ(std::get<double>(attributes.at("attnd.compute_seconds")), 0.01);
}

TEST_F(OtlpSpansTest, WhatNobodyRecordsIsNotSent) {
  spans_->Add(Call(""));
  std::string unsampled = kParent;
  unsampled.back() = '0';
  spans_->Add(Call(unsampled));
  EXPECT_TRUE(Sent().empty());
}

}  // namespace
}  // namespace attnd::server
