#include "server/admin/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.pb.h"

namespace attnd::server {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptorProto;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using ::testing::Contains;
using ::testing::ElementsAre;

std::vector<std::string> FilesOf(const ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const std::string& bytes :
       response.file_descriptor_response().file_descriptor_proto()) {
    FileDescriptorProto file;
    EXPECT_TRUE(file.ParseFromString(bytes));
    names.push_back(file.name());
  }
  return names;
}

class SchemaTest : public ::testing::Test {
 protected:
  ServerReflectionResponse File(const std::string& name) {
    ServerReflectionRequest request;
    request.set_file_by_filename(name);
    return schema_.Answer(request);
  }
  ServerReflectionResponse Symbol(const std::string& name) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(name);
    return schema_.Answer(request);
  }

  const Schema schema_{{"grpc.channelz.v1.Channelz", "grpc.health.v1.Health"}};
};

TEST_F(SchemaTest, ListsWhatIsServed) {
  ServerReflectionRequest request;
  request.set_host("here");
  request.set_list_services("*");
  const ServerReflectionResponse response = schema_.Answer(request);
  EXPECT_EQ(response.valid_host(), "here");
  EXPECT_EQ(response.original_request().list_services(), "*");
  ASSERT_EQ(response.list_services_response().service_size(), 2);
  EXPECT_EQ(response.list_services_response().service(1).name(),
            "grpc.health.v1.Health");
}

TEST_F(SchemaTest, AFileComesWithAllThatItImports) {
  const ServerReflectionResponse response =
      File("grpc/channelz/v1/channelz.proto");
  EXPECT_THAT(FilesOf(response), ElementsAre("grpc/channelz/v1/channelz.proto",
                                             "google/protobuf/any.proto",
                                             "google/protobuf/timestamp.proto",
                                             "google/protobuf/wrappers.proto"));
}

TEST_F(SchemaTest, FindsSymbolsOfEveryKind) {
  for (const char* symbol :
       {"grpc.health.v1.Health", "grpc.health.v1.Health.Check",
        "grpc.health.v1.HealthCheckRequest",
        "grpc.health.v1.HealthCheckRequest.service",
        "grpc.health.v1.HealthCheckResponse.ServingStatus"}) {
    EXPECT_THAT(FilesOf(Symbol(symbol)),
                ElementsAre("grpc/health/v1/health.proto"))
        << symbol;
  }
}

TEST_F(SchemaTest, KnowsTheDetailsOfErrors) {
  for (const char* symbol : {"google.rpc.BadRequest", "google.rpc.RetryInfo"}) {
    EXPECT_THAT(FilesOf(Symbol(symbol)),
                Contains("google/protobuf/duration.proto"));
  }
  EXPECT_THAT(FilesOf(Symbol("google.rpc.Status")),
              Contains("google/rpc/status.proto"));
}

TEST_F(SchemaTest, WhatIsNotServedIsNotFound) {
  const int not_found = static_cast<int>(absl::StatusCode::kNotFound);
  ServerReflectionRequest extension;
  extension.mutable_file_containing_extension()->set_containing_type(
      "grpc.health.v1.HealthCheckRequest");
  extension.mutable_file_containing_extension()->set_extension_number(1);
  ServerReflectionRequest numbers;
  numbers.set_all_extension_numbers_of_type("no.such.Message");
  for (const ServerReflectionResponse& response :
       {File("attn/v1/attention.proto"), File("attn/v1/region.proto"),
        Symbol("attn.v1.AttentionService"), Symbol(""),
        Symbol(".grpc.health.v1.Health"), schema_.Answer(extension),
        schema_.Answer(numbers)}) {
    EXPECT_EQ(response.error_response().error_code(), not_found)
        << response.DebugString();
  }
}

TEST_F(SchemaTest, AMessageWithoutExtensionsHasNone) {
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type(
      "grpc.health.v1.HealthCheckRequest");
  const ServerReflectionResponse response = schema_.Answer(request);
  ASSERT_TRUE(response.has_all_extension_numbers_response());
  EXPECT_EQ(response.all_extension_numbers_response().base_type_name(),
            "grpc.health.v1.HealthCheckRequest");
  EXPECT_EQ(response.all_extension_numbers_response().extension_number_size(),
            0);
}

TEST_F(SchemaTest, ARequestForNothingIsInvalid) {
  EXPECT_EQ(schema_.Answer({}).error_response().error_code(),
            static_cast<int>(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace attnd::server
