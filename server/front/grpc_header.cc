#include "server/front/grpc_header.h"

#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "proto/wire/grpc_time.h"
#include "proto/wire/metadata.h"

namespace attnd::server {

namespace {

std::optional<absl::string_view> Find(const grpc::ServerContextBase& context,
                                      const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  return absl::string_view(found->second.data(), found->second.size());
}

}  // namespace

absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context,
                                Callers& callers) {
  absl::InlinedVector<absl::string_view, 2> authorization;
  const auto headers = context.client_metadata().equal_range("authorization");
  for (auto header = headers.first; header != headers.second; ++header) {
    authorization.emplace_back(header->second.data(), header->second.size());
  }
  return callers.Admit(context.peer(), authorization, MonotonicNow());
}

CallIds IdsOf(const grpc::ServerContextBase& context) {
  return CallIds(Find(context, wire::kRequestIdKey),
                 Find(context, wire::kTraceparentKey));
}

CallHeader HeaderOf(const grpc::ServerContextBase& context, Callers& callers) {
  CallHeader header;
  header.caller = CallerOf(context, callers);
  if (header.caller.ok()) header.sender.client = header.caller->client;
  header.sender.connection = context.peer();
  header.deadline = wire::FromGrpcDeadline(context.raw_deadline());
  if (const auto hint = Find(context, wire::kRequestBytesKey)) {
    header.request_bytes.emplace(*hint);
  }
  header.ids = IdsOf(context);
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
