#include "server/admin/channelz_service.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"
#include "grpc/channelz/v1/channelz.pb.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"

namespace attnd::server {
namespace {

namespace channelz = grpc::channelz::v1;

// They are over in a moment, unless a client is slow.
constexpr int kCalls = 64;

// The message that `json`, which gRPC gave and this frees, stands for.
// NOT_FOUND: gRPC gave none.
absl::Status Parse(char* json, google::protobuf::Message& response) {
  if (json == nullptr) {
    return absl::NotFoundError("there is nothing with this id");
  }
  const std::unique_ptr<char, decltype(&gpr_free)> owner(json, gpr_free);
  google::protobuf::util::JsonParseOptions options;
  // gRPC may know more than the schema.
  options.ignore_unknown_fields = true;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(json, &response, options);
  if (parsed.ok()) return absl::OkStatus();
  return absl::InternalError("what gRPC says of itself cannot be read");
}

absl::Status NotNegative(const char* field, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": is negative"));
}

absl::Status Check(const char* start, int64_t start_id, int64_t max_results) {
  absl::Status status = NotNegative(start, start_id);
  status.Update(NotNegative("max_results", max_results));
  return status;
}

// Leaves the first `most` of `list`, all if that is 0. True: some went.
template <class List>
bool Cut(int64_t most, List& list) {
  if (most == 0 || list.size() <= most) return false;
  list.DeleteSubrange(static_cast<int>(most),
                      list.size() - static_cast<int>(most));
  return true;
}

absl::Status TopChannels(const channelz::GetTopChannelsRequest& request,
                         channelz::GetTopChannelsResponse& response) {
  absl::Status status = Check("start_channel_id", request.start_channel_id(),
                              request.max_results());
  if (!status.ok()) return status;
  status = Parse(grpc_channelz_get_top_channels(request.start_channel_id()),
                 response);
  if (Cut(request.max_results(), *response.mutable_channel()))
    response.clear_end();
  return status;
}

absl::Status Servers(const channelz::GetServersRequest& request,
                     channelz::GetServersResponse& response) {
  absl::Status status = Check("start_server_id", request.start_server_id(),
                              request.max_results());
  if (!status.ok()) return status;
  status =
      Parse(grpc_channelz_get_servers(request.start_server_id()), response);
  if (Cut(request.max_results(), *response.mutable_server()))
    response.clear_end();
  return status;
}

absl::Status Sockets(const channelz::GetServerSocketsRequest& request,
                     channelz::GetServerSocketsResponse& response) {
  absl::Status status = Check("start_socket_id", request.start_socket_id(),
                              request.max_results());
  if (!status.ok()) return status;
  return Parse(grpc_channelz_get_server_sockets(request.server_id(),
                                                request.start_socket_id(),
                                                request.max_results()),
               response);
}

absl::Status Server(const channelz::GetServerRequest& request,
                    channelz::GetServerResponse& response) {
  return Parse(grpc_channelz_get_server(request.server_id()), response);
}

absl::Status Channel(const channelz::GetChannelRequest& request,
                     channelz::GetChannelResponse& response) {
  return Parse(grpc_channelz_get_channel(request.channel_id()), response);
}

absl::Status Subchannel(const channelz::GetSubchannelRequest& request,
                        channelz::GetSubchannelResponse& response) {
  return Parse(grpc_channelz_get_subchannel(request.subchannel_id()), response);
}

absl::Status Socket(const channelz::GetSocketRequest& request,
                    channelz::GetSocketResponse& response) {
  return Parse(grpc_channelz_get_socket(request.socket_id()), response);
}

}  // namespace

template <class Request, class Response>
void ChannelzService::AddUnary(const char* path,
                               absl::Status (*answer)(const Request&,
                                                      Response&)) {
  Add(path, [this, by = AnswerBy<Request, Response>(
                       [answer](const SmallCaller&, const Request& request,
                                Response& response) {
                         return answer(request, response);
                       })] {
    return std::make_shared<SmallUnaryCall>(parts_, calls_, by);
  });
}

ChannelzService::ChannelzService(SmallCallParts parts)
    : parts_(parts), calls_("calls of channelz at once", kCalls, kCalls) {
  AddUnary("/grpc.channelz.v1.Channelz/GetTopChannels", &TopChannels);
  AddUnary("/grpc.channelz.v1.Channelz/GetServers", &Servers);
  AddUnary("/grpc.channelz.v1.Channelz/GetServer", &Server);
  AddUnary("/grpc.channelz.v1.Channelz/GetServerSockets", &Sockets);
  AddUnary("/grpc.channelz.v1.Channelz/GetChannel", &Channel);
  AddUnary("/grpc.channelz.v1.Channelz/GetSubchannel", &Subchannel);
  AddUnary("/grpc.channelz.v1.Channelz/GetSocket", &Socket);
}

}  // namespace attnd::server
