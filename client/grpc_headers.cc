#include "client/grpc_headers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/wire/grpc_status.h"
#include "proto/wire/metadata.h"
#include "proto/wire/status.h"

namespace attnd::client {

void SayHeaders(const CallHeaders& headers, int64_t bytes,
                grpc::ClientContext& context) {
  context.AddMetadata(wire::kRequestBytesKey, absl::StrCat(bytes));
  if (!headers.request_id.empty()) {
    context.AddMetadata(wire::kRequestIdKey, headers.request_id);
  }
  if (!headers.traceparent.empty()) {
    context.AddMetadata(wire::kTraceparentKey, headers.traceparent);
  }
}

absl::Status StatusOf(const grpc::Status& status,
                      const grpc::ClientContext& context) {
  absl::Status result = wire::FromGrpcStatus(status);
  if (result.ok()) return result;
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(wire::kRequestIdKey);
  if (found == metadata.end()) return result;
  const absl::string_view id(found->second.data(), found->second.size());
  // It will be printed, and who knows what has answered.
  if (!wire::IsRequestId(id)) return result;
  return wire::WithRequestId(std::move(result), id);
}

}  // namespace attnd::client
