// --admin_address: pages and calls for operators on one port, apart from the
// public one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "grpc/channelz/v1/channelz.pb.h"
#include "tests/hang_limit.h"
#include "tests/integration/http_get.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/integration/streams.h"

namespace attnd::testing {
namespace {

namespace channelz = grpc::channelz::v1;
using ::testing::HasSubstr;

constexpr char kChannelz[] = "/grpc.channelz.v1.Channelz/";
constexpr char kInfo[] = "/attn.v1.AttentionService/GetServerInfo";
// As server/config/options.h has it.
constexpr int kMostConnections = 64;

class AdminTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(),
                 {"--memory_limit=128MiB", "--admin_address=127.0.0.1:0"});
    auto process = ServerProcess::Start(ATTND_BINARY, flags);
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    // Its lines may come later than its port file.
    ASSERT_TRUE(process_->AwaitLog(", HTTP and gRPC")) << process_->log();
  }
  std::shared_ptr<grpc::Channel> Admin() const {
    return Connect(absl::StrCat("127.0.0.1:", process_->admin_port()));
  }
  std::shared_ptr<grpc::Channel> Public() const {
    return Connect(process_->tcp());
  }
  std::string Page(const std::string& path) const {
    return HttpGet(process_->admin_port(), path);
  }

  std::unique_ptr<ServerProcess> process_;
};

template <class Request, class Response>
absl::Status Channelz(const std::shared_ptr<grpc::Channel>& channel,
                      const std::string& method, const Request& request,
                      Response& response) {
  return CallUnary(channel, kChannelz + method, request, response);
}

TEST_F(AdminTest, ShowsPagesAndAnswersCallsOnOnePort) {
  Start();
  EXPECT_EQ(Page("/healthz"), "ok\n");
  EXPECT_EQ(Page("/readyz"), "serving\n");
  EXPECT_THAT(Page("/metrics"), HasSubstr("attnd_build_info"));
  EXPECT_EQ(Page("/"), "404 Not Found\n");
  EXPECT_EQ(Health(Admin()), "SERVING");
  EXPECT_EQ(Health(Admin(), "attn.v1.AttentionService"), "SERVING");
}

TEST_F(AdminTest, ThePublicPortShowsNothingOfIt) {
  Start();
  const int port =
      std::stoi(process_->tcp().substr(process_->tcp().rfind(':') + 1));
  EXPECT_EQ(HttpGet(port, "/metrics"), "");
  EXPECT_EQ(HttpGet(port, "/status"), "");
  channelz::GetServersResponse servers;
  const absl::Status status =
      Channelz(Public(), "GetServers", channelz::GetServersRequest(), servers);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
}

TEST_F(AdminTest, SaysWhatTheServerIsAndDoes) {
  Start({"--max_connections=77"});
  const auto open = Public();
  EXPECT_EQ(Health(open), "SERVING");
  google::protobuf::Struct status;
  const std::string page = Page("/status");
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(page, &status).ok())
      << page;
  attn::v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      CallUnary(open, kInfo, attn::v1::GetServerInfoRequest(), info).ok());
  const auto& fields = status.fields();
  EXPECT_EQ(fields.at("version").string_value(), info.version());
  EXPECT_EQ(fields.at("instance").string_value(), info.server_instance_id());
  EXPECT_EQ(fields.at("health").string_value(), "serving");
  EXPECT_GT(fields.at("uptime_seconds").number_value(), 0);
  EXPECT_EQ(fields.at("devices").list_value().values_size(), 1);
  const auto number = [&fields](const char* object, const char* name) {
    return fields.at(object).struct_value().fields().at(name).number_value();
  };
  EXPECT_EQ(number("limits", "max_connections"), 77);
  EXPECT_EQ(number("limits", "memory_limit_bytes"), 128 << 20);
  EXPECT_EQ(number("queue", "requests"), 0);
  EXPECT_EQ(number("connections", "open"), 1);
}

TEST_F(AdminTest, ShowsAPageForABrowser) {
  Start();
  const std::string page = Page("/statusz");
  EXPECT_THAT(page, ::testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, ::testing::EndsWith("</html>\n"));
  for (const char* title : {"Devices", "Queue", "Memory", "Connections"}) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("<h2>", title, "</h2>")));
  }
  EXPECT_THAT(page, HasSubstr("cpu:0"));
}

TEST_F(AdminTest, AnswersGetServerInfoAndNoAttention) {
  Start();
  attn::v1::GetServerInfoResponse here, there;
  const attn::v1::GetServerInfoRequest request;
  ASSERT_TRUE(CallUnary(Admin(), kInfo, request, here).ok());
  ASSERT_TRUE(CallUnary(Public(), kInfo, request, there).ok());
  EXPECT_EQ(here.server_instance_id(), there.server_instance_id());
  const absl::Status status = RawCall(Admin(), Op::kForward, "");
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
}

TEST_F(AdminTest, IsReadyUntilTheDrain) {
  Start({"--drain_time=1h"});
  PendingForward holding(Public(), EndlessForward(), absl::InfiniteDuration());
  ASSERT_TRUE(Eventually([&] {
    return MetricValue(Page("/metrics"), "attnd_running_requests") == 1;
  }));
  process_->Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return Page("/readyz") == "draining\n"; }));
  EXPECT_EQ(Page("/healthz"), "ok\n");
  EXPECT_THAT(Page("/status"), HasSubstr("\"health\": \"draining\""));
  EXPECT_EQ(Health(Admin()), "NOT_SERVING");
  holding.Cancel();
  EXPECT_EQ(process_->Wait(), 0) << process_->log();
}

TEST_F(AdminTest, ItsConnectionsAndThoseOfClientsDoNotCountTogether) {
  Start({"--max_connections=1"});
  const auto client = Public();
  EXPECT_EQ(Health(client), "SERVING");
  std::vector<std::shared_ptr<grpc::Channel>> admins;
  for (int i = 0; i < kMostConnections; ++i) {
    admins.push_back(Admin());
    EXPECT_EQ(Health(admins.back()), "SERVING") << i;
  }
  EXPECT_THAT(Health(Admin()), HasSubstr("UNAVAILABLE"));
  EXPECT_EQ(Page("/readyz"), "serving\n");
  EXPECT_EQ(Health(client), "SERVING");
  admins.pop_back();
  EXPECT_TRUE(Eventually([&] { return Health(Admin()) == "SERVING"; }));
}

TEST_F(AdminTest, ChannelzKnowsBothServersAndTheirConnections) {
  Start();
  const auto open = Public(), admin = Admin();
  EXPECT_EQ(Health(open), "SERVING");
  channelz::GetServersResponse servers;
  absl::Status status =
      Channelz(admin, "GetServers", channelz::GetServersRequest(), servers);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(servers.server_size(), 2);
  EXPECT_TRUE(servers.end());
  for (const channelz::Server& server : servers.server()) {
    EXPECT_GT(server.data().calls_started(), 0);
    channelz::GetServerRequest request;
    request.set_server_id(server.ref().server_id());
    channelz::GetServerResponse same;
    ASSERT_TRUE(Channelz(admin, "GetServer", request, same).ok());
    EXPECT_EQ(same.server().ref().server_id(), request.server_id());
    channelz::GetServerSocketsRequest of_server;
    of_server.set_server_id(request.server_id());
    channelz::GetServerSocketsResponse sockets;
    ASSERT_TRUE(Channelz(admin, "GetServerSockets", of_server, sockets).ok());
    ASSERT_EQ(sockets.socket_ref_size(), 1);
    channelz::GetSocketRequest of_socket;
    of_socket.set_socket_id(sockets.socket_ref(0).socket_id());
    channelz::GetSocketResponse socket;
    ASSERT_TRUE(Channelz(admin, "GetSocket", of_socket, socket).ok());
    EXPECT_EQ(socket.socket().remote().tcpip_address().ip_address(),
              std::string("\x7f\0\0\x01", 4));
    EXPECT_GT(socket.socket().data().messages_received(), 0);
  }
}

TEST_F(AdminTest, ChannelzGivesAsMuchAsIsAskedFor) {
  Start();
  const auto admin = Admin();
  channelz::GetServersRequest one;
  one.set_max_results(1);
  channelz::GetServersResponse first, second;
  ASSERT_TRUE(Channelz(admin, "GetServers", one, first).ok());
  ASSERT_EQ(first.server_size(), 1);
  EXPECT_FALSE(first.end());
  one.set_start_server_id(first.server(0).ref().server_id() + 1);
  ASSERT_TRUE(Channelz(admin, "GetServers", one, second).ok());
  ASSERT_EQ(second.server_size(), 1);
  EXPECT_TRUE(second.end());
  channelz::GetTopChannelsResponse channels;
  ASSERT_TRUE(Channelz(admin, "GetTopChannels",
                       channelz::GetTopChannelsRequest(), channels)
                  .ok());
  EXPECT_EQ(channels.channel_size(), 0);
}

TEST_F(AdminTest, ChannelzRefusesWhatThereIsNot) {
  Start();
  const auto admin = Admin();
  channelz::GetChannelResponse channel;
  EXPECT_TRUE(absl::IsNotFound(
      Channelz(admin, "GetChannel", channelz::GetChannelRequest(), channel)));
  channelz::GetSubchannelResponse subchannel;
  EXPECT_TRUE(absl::IsNotFound(Channelz(
      admin, "GetSubchannel", channelz::GetSubchannelRequest(), subchannel)));
  channelz::GetSocketRequest far;
  far.set_socket_id(int64_t{1} << 62);
  channelz::GetSocketResponse socket;
  EXPECT_TRUE(absl::IsNotFound(Channelz(admin, "GetSocket", far, socket)));
  channelz::GetServersRequest negative;
  negative.set_max_results(-1);
  channelz::GetServersResponse servers;
  const absl::Status status = Channelz(admin, "GetServers", negative, servers);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_results"));
}

TEST(AdminFlags, AreCheckedAtTheStart) {
  const auto refused = [](const char* flag) {
    const Ran ran = RunProgram({ATTND_BINARY, "--port=0", flag});
    EXPECT_EQ(ran.exit_status, 2) << ran.output;
    return ran.output;
  };
  EXPECT_THAT(refused("--admin_address=0.0.0.0:0"),
              HasSubstr("--admin_address: 0.0.0.0 is not loopback"));
  EXPECT_THAT(refused("--admin_address=7412"),
              HasSubstr("--admin_address: must be HOST:PORT"));
  EXPECT_THAT(refused("--reflection=some"),
              HasSubstr("is none of off, admin, all"));
}

TEST(AdminFlags, AnAddressThatIsTakenIsSaid) {
  auto process = ServerProcess::Start(ATTND_BINARY);
  ASSERT_TRUE(process.ok()) << process.status();
  const Ran ran = RunProgram({ATTND_BINARY, "--port=0", "--device=cpu",
                              "--admin_address=" + (*process)->tcp()});
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_THAT(ran.output, HasSubstr("cannot listen on " + (*process)->tcp()));
}

}  // namespace
}  // namespace attnd::testing
