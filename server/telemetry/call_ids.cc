#include "server/telemetry/call_ids.h"

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/metadata.h"

namespace attnd::server {
namespace {

// Not 0, which no span may be.
uint64_t NewNumber() {
  thread_local absl::InsecureBitGen random;
  return absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1, ~uint64_t{0});
}

}  // namespace

CallIds::CallIds(std::optional<absl::string_view> request_id,
                 std::optional<absl::string_view> traceparent)
    : number_(NewNumber()) {
  if (request_id.has_value() && wire::IsRequestId(*request_id)) {
    given_ = std::string(*request_id);
  }
  if (traceparent.has_value()) parent_ = wire::ParseTraceparent(*traceparent);
}

std::string CallIds::request_id() const {
  if (!given_.empty()) return given_;
  return absl::StrCat(absl::Hex(number_, absl::kZeroPad16));
}

wire::TraceContext CallIds::span() const {
  wire::TraceContext span = *parent_;
  for (size_t i = 0; i < span.span_id.size(); ++i) {
    span.span_id[i] = static_cast<uint8_t>(number_ >> (56 - 8 * i));
  }
  return span;
}

}  // namespace attnd::server
