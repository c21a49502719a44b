#include "server/scheduling/call_refusal.h"

#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

// By CallRefusal.
constexpr const char* kNames[] = {"no_identity",
                                  "token",
                                  "max_client_rate",
                                  "max_client_queue_bytes",
                                  "max_client_queue_flops",
                                  "queue_full",
                                  "queue_flops",
                                  "memory",
                                  "too_large",
                                  "unsupported",
                                  "invalid",
                                  "draining",
                                  "no_device"};
static_assert(std::size(kNames) == kCallRefusals);

}  // namespace

const char* NameOf(CallRefusal why) { return kNames[static_cast<size_t>(why)]; }

absl::Status Refused(CallRefusal why, const absl::Status& status) {
  return wire::WithReason(status, absl::AsciiStrToUpper(NameOf(why)));
}

absl::Status ShuttingDown() {
  return Refused(CallRefusal::kDraining,
                 absl::UnavailableError("the server is shutting down"));
}

std::optional<CallRefusal> RefusalOf(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const std::string reason = absl::AsciiStrToLower(wire::Reason(status));
  for (int i = 0; i < kCallRefusals; ++i) {
    if (reason == kNames[i]) return static_cast<CallRefusal>(i);
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return CallRefusal::kInvalid;
    case absl::StatusCode::kUnimplemented:
      return CallRefusal::kUnsupported;
    case absl::StatusCode::kResourceExhausted:
      return CallRefusal::kMemory;
    default:
      return std::nullopt;
  }
}

absl::Status WithRefusal(const absl::Status& status) {
  const std::optional<CallRefusal> why = RefusalOf(status);
  return why.has_value() ? Refused(*why, status) : status;
}

}  // namespace attnd::server
