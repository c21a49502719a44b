#include "server/front/grpc_header.h"

#include "proto/wire/grpc_time.h"
#include "proto/wire/metadata.h"
#include "server/front/identity.h"

namespace attnd::server {

CallHeader HeaderOf(const grpc::ServerContextBase& context) {
  CallHeader header;
  header.sender.connection = context.peer();
  header.sender.client = ClientOf(header.sender.connection);
  header.deadline = wire::FromGrpcDeadline(context.raw_deadline());
  const auto& metadata = context.client_metadata();
  const auto hint = metadata.find(wire::kRequestBytesKey);
  if (hint != metadata.end()) {
    header.request_bytes.emplace(hint->second.data(), hint->second.size());
  }
  return header;
}

}  // namespace attnd::server
