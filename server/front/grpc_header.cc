#include "server/front/grpc_header.h"

#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "proto/wire/grpc_time.h"
#include "proto/wire/metadata.h"

namespace attnd::server {

absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context,
                                Callers& callers) {
  absl::InlinedVector<absl::string_view, 2> authorization;
  const auto headers = context.client_metadata().equal_range("authorization");
  for (auto header = headers.first; header != headers.second; ++header) {
    authorization.emplace_back(header->second.data(), header->second.size());
  }
  return callers.Admit(context.peer(), authorization, MonotonicNow());
}

CallHeader HeaderOf(const grpc::ServerContextBase& context, Callers& callers) {
  CallHeader header;
  header.caller = CallerOf(context, callers);
  if (header.caller.ok()) header.sender.client = header.caller->client;
  header.sender.connection = context.peer();
  header.deadline = wire::FromGrpcDeadline(context.raw_deadline());
  const auto value = [&context](const char* key) {
    std::optional<absl::string_view> text;
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find(key);
    if (found != metadata.end()) {
      text.emplace(found->second.data(), found->second.size());
    }
    return text;
  };
  if (const auto hint = value(wire::kRequestBytesKey)) {
    header.request_bytes.emplace(*hint);
  }
  header.ids =
      CallIds(value(wire::kRequestIdKey), value(wire::kTraceparentKey));
  return header;
}

void TellIds(const CallIds& ids, grpc::ServerContextBase& context) {
  context.AddTrailingMetadata(wire::kRequestIdKey, ids.request_id());
  if (ids.parent().has_value()) {
    context.AddTrailingMetadata(wire::kTraceparentKey,
                                wire::ToTraceparent(ids.span()));
  }
}

}  // namespace attnd::server
