#include "proto/wire/grpc_status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "proto/wire/status.h"

namespace attnd::wire {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  bool has_payloads = false;
  status.ForEachPayload(
      [&](absl::string_view, const absl::Cord&) { has_payloads = true; });
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()),
                      has_payloads ? EncodeStatus(status) : std::string());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  absl::Status outer(static_cast<absl::StatusCode>(status.error_code()),
                     status.error_message());
  absl::Status detailed;
  if (outer.ok() || status.error_details().empty() ||
      !DecodeStatus(status.error_details(), detailed).ok()) {
    return outer;
  }
  if (detailed.raw_code() == outer.raw_code()) return detailed;
  detailed.ForEachPayload([&](absl::string_view url, const absl::Cord& bytes) {
    outer.SetPayload(url, bytes);
  });
  return outer;
}

}  // namespace attnd::wire
