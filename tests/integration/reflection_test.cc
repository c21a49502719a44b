// Reflection as clients see it, and where it is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/descriptor_database.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "tests/hang_limit.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/integration/streams.h"

namespace attnd::testing {
namespace {

namespace v1 = grpc::reflection::v1;
namespace v1alpha = grpc::reflection::v1alpha;
using ::testing::Contains;
using ::testing::IsSupersetOf;

constexpr char kV1[] =
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kV1Alpha[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
// As server/admin/reflection_service.h has it.
constexpr int kStreamsPerClient = 8;

using Channel = std::shared_ptr<grpc::Channel>;
using V1Stream =
    Stream<v1::ServerReflectionRequest, v1::ServerReflectionResponse>;

std::unique_ptr<ServerProcess> StartAttnd(std::vector<std::string> flags) {
  flags.insert(flags.end(),
               {"--memory_limit=128MiB", "--admin_address=127.0.0.1:0"});
  auto process = ServerProcess::Start(ATTND_BINARY, flags);
  EXPECT_TRUE(process.ok()) << process.status();
  // Its lines may come later than its port file.
  EXPECT_TRUE((*process)->AwaitLog(", HTTP and gRPC"));
  return *std::move(process);
}

Channel Admin(const ServerProcess& process) {
  return Connect(absl::StrCat("127.0.0.1:", process.admin_port()));
}

v1::ServerReflectionRequest List() {
  v1::ServerReflectionRequest request;
  request.set_list_services("");
  return request;
}

// How a stream ends on which nothing is asked.
absl::Status Status(const Channel& channel, const char* path) {
  V1Stream stream(channel, path);
  stream.Send(List());
  if (stream.Next().has_value()) return absl::OkStatus();
  return stream.End();
}

// The services that a server lists, each with its file and all imports.
template <class Request, class Response>
void ExpectAllDescribable(const Channel& channel, const char* path,
                          std::vector<std::string> symbols) {
  Stream<Request, Response> stream(channel, path);
  Request list;
  list.set_list_services("");
  const auto listed = stream.Ask(list);
  ASSERT_TRUE(listed.has_value()) << stream.End();
  for (const auto& service : listed->list_services_response().service()) {
    symbols.push_back(service.name());
  }
  EXPECT_THAT(symbols, Contains("grpc.reflection.v1.ServerReflection"));
  for (const std::string& symbol : symbols) {
    Request request;
    request.set_file_containing_symbol(symbol);
    const auto answer = stream.Ask(request);
    ASSERT_TRUE(answer.has_value()) << stream.End();
    google::protobuf::SimpleDescriptorDatabase database;
    for (const std::string& file :
         answer->file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto proto;
      ASSERT_TRUE(proto.ParseFromString(file));
      database.Add(proto);
    }
    google::protobuf::DescriptorPool pool(&database);
    EXPECT_NE(pool.FindFileContainingSymbol(symbol), nullptr) << symbol;
  }
}

TEST(Reflection, IsOnTheAdminPortAlone) {
  const auto process = StartAttnd({});
  for (const char* path : {kV1, kV1Alpha}) {
    const absl::Status status = Status(Connect(process->tcp()), path);
    EXPECT_TRUE(absl::IsUnimplemented(status)) << path << status;
    EXPECT_TRUE(Status(Admin(*process), path).ok()) << path;
  }
}

TEST(Reflection, IsNowhereOrEverywhereIfAskedFor) {
  const auto off = StartAttnd({"--reflection=off"});
  const auto all = StartAttnd({"--reflection=all"});
  for (const char* path : {kV1, kV1Alpha}) {
    EXPECT_TRUE(absl::IsUnimplemented(Status(Admin(*off), path)));
    EXPECT_TRUE(absl::IsUnimplemented(Status(Connect(off->tcp()), path)));
    EXPECT_TRUE(Status(Admin(*all), path).ok());
    EXPECT_TRUE(Status(Connect(all->tcp()), path).ok());
  }
}

TEST(Reflection, DescribesEveryServiceThatItLists) {
  const auto process = StartAttnd({"--reflection=all"});
  const std::vector<std::string> details = {"google.rpc.BadRequest",
                                            "google.rpc.RetryInfo"};
  for (const Channel& channel : {Admin(*process), Connect(process->tcp())}) {
    ExpectAllDescribable<v1::ServerReflectionRequest,
                         v1::ServerReflectionResponse>(channel, kV1, details);
    ExpectAllDescribable<v1alpha::ServerReflectionRequest,
                         v1alpha::ServerReflectionResponse>(channel, kV1Alpha,
                                                            details);
  }
}

TEST(Reflection, ListsWhatThePortServes) {
  const auto process = StartAttnd({"--reflection=all"});
  const auto services = [](const Channel& channel) {
    std::set<std::string> names;
    const auto answer = V1Stream(channel, kV1).Ask(List());
    EXPECT_TRUE(answer.has_value());
    for (const auto& service : answer->list_services_response().service()) {
      names.insert(service.name());
    }
    return names;
  };
  const std::set<std::string> open = services(Connect(process->tcp()));
  EXPECT_THAT(open, IsSupersetOf(
                        {"attn.v1.AttentionService", "grpc.health.v1.Health"}));
  EXPECT_FALSE(open.contains("grpc.channelz.v1.Channelz"));
  EXPECT_TRUE(services(Admin(*process)).contains("grpc.channelz.v1.Channelz"));
}

TEST(Reflection, AnErrorEndsNoStream) {
  const auto process = StartAttnd({});
  V1Stream stream(Admin(*process), kV1);
  v1::ServerReflectionRequest request;
  request.set_file_by_filename("no/such.proto");
  const auto missing = stream.Ask(request);
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->error_response().error_code(),
            static_cast<int>(absl::StatusCode::kNotFound));
  const auto nothing = stream.Ask({});
  ASSERT_TRUE(nothing.has_value());
  EXPECT_EQ(nothing->error_response().error_code(),
            static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(stream.Ask(List()).has_value());
}

TEST(Reflection, AClientHasAFewStreams) {
  const auto process = StartAttnd({"--reflection=all"});
  const Channel channel = Connect(process->tcp());
  std::vector<std::unique_ptr<V1Stream>> streams;
  for (int i = 0; i < kStreamsPerClient; ++i) {
    streams.push_back(
        std::make_unique<V1Stream>(channel, i % 2 ? kV1 : kV1Alpha));
    EXPECT_TRUE(streams.back()->Ask(List()).has_value()) << i;
  }
  const absl::Status refused = V1Stream(channel, kV1).End();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(Health(channel), "SERVING");
  streams.pop_back();
  EXPECT_TRUE(Eventually([&] { return Status(channel, kV1).ok(); }));
}

TEST(Reflection, ALargeRequestIsRefused) {
  const auto process = StartAttnd({"--reflection=all"});
  v1::ServerReflectionRequest request;
  request.set_file_by_filename(std::string((64 << 10) + 1, 'x'));
  for (const Channel& channel : {Admin(*process), Connect(process->tcp())}) {
    V1Stream stream(channel, kV1);
    stream.Send(request);
    const absl::Status refused = stream.End();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  }
}

TEST(Reflection, AStreamOnWhichNothingIsAskedEnds) {
  const auto process = StartAttnd({"--stall_time=200ms"});
  V1Stream stream(Admin(*process), kV1);
  EXPECT_TRUE(stream.Ask(List()).has_value());
  const absl::Status ended = stream.End();
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended)) << ended;
}

}  // namespace
}  // namespace attnd::testing
