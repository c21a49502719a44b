#include "server/admin/schema.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "attn/v1/attention.pb.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/channelz/v1/channelz.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"

namespace attnd::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

void SetError(absl::StatusCode code, absl::string_view message,
              ServerReflectionResponse& response) {
  auto& error = *response.mutable_error_response();
  error.set_error_code(static_cast<int>(code));
  error.set_error_message(std::string(message));
}

// Where services may be declared. Naming the files links them.
std::vector<const FileDescriptor*> FilesOfServices() {
  return {
      attn::v1::GetServerInfoRequest::descriptor()->file(),
      grpc::channelz::v1::Server::descriptor()->file(),
      grpc::health::v1::HealthCheckRequest::descriptor()->file(),
      ServerReflectionRequest::descriptor()->file(),
      grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()};
}

void AddWithImports(const FileDescriptor& file, std::set<std::string>& seen,
                    grpc::reflection::v1::FileDescriptorResponse& response) {
  if (!seen.insert(file.name()).second) return;
  FileDescriptorProto proto;
  file.CopyTo(&proto);
  response.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) {
    AddWithImports(*file.dependency(i), seen, response);
  }
}

}  // namespace

Schema::Schema(const std::vector<std::string>& services) : services_(services) {
  for (const FileDescriptor* file : FilesOfServices()) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (const std::string& service : services_) {
        if (file->service(i)->full_name() == service) Add(*file);
      }
    }
  }
  Add(*google::rpc::Status::descriptor()->file());
  Add(*google::rpc::BadRequest::descriptor()->file());
}

void Schema::Add(const FileDescriptor& file) {
  if (pool_.FindFileByName(file.name()) != nullptr) return;
  for (int i = 0; i < file.dependency_count(); ++i) Add(*file.dependency(i));
  FileDescriptorProto proto;
  file.CopyTo(&proto);
  pool_.BuildFile(proto);
}

ServerReflectionResponse Schema::Answer(
    const ServerReflectionRequest& request) const {
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      AnswerFile(pool_.FindFileByName(request.file_by_filename()), "file",
                 response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      AnswerFile(
          pool_.FindFileContainingSymbol(request.file_containing_symbol()),
          "symbol", response);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      AnswerExtension(request.file_containing_extension(), response);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      AnswerExtensionNumbers(request.all_extension_numbers_of_type(), response);
      break;
    case ServerReflectionRequest::kListServices:
      for (const std::string& service : services_) {
        response.mutable_list_services_response()->add_service()->set_name(
            service);
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      SetError(absl::StatusCode::kInvalidArgument,
               "message_request: is not set, or to what this server does not "
               "know",
               response);
      break;
  }
  return response;
}

void Schema::AnswerFile(const FileDescriptor* file, absl::string_view asked_for,
                        Response& response) const {
  if (file == nullptr) {
    return SetError(absl::StatusCode::kNotFound,
                    absl::StrCat("no such ", asked_for), response);
  }
  std::set<std::string> seen;
  AddWithImports(*file, seen, *response.mutable_file_descriptor_response());
}

void Schema::AnswerExtension(
    const grpc::reflection::v1::ExtensionRequest& extension,
    Response& response) const {
  const Descriptor* type =
      pool_.FindMessageTypeByName(extension.containing_type());
  const FieldDescriptor* field =
      type == nullptr
          ? nullptr
          : pool_.FindExtensionByNumber(type, extension.extension_number());
  AnswerFile(field == nullptr ? nullptr : field->file(), "extension", response);
}

void Schema::AnswerExtensionNumbers(const std::string& type,
                                    Response& response) const {
  const Descriptor* found = pool_.FindMessageTypeByName(type);
  if (found == nullptr) {
    return SetError(absl::StatusCode::kNotFound, "no such message", response);
  }
  std::vector<const FieldDescriptor*> extensions;
  pool_.FindAllExtensions(found, &extensions);
  auto& numbers = *response.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(found->full_name());
  for (const FieldDescriptor* extension : extensions) {
    numbers.add_extension_number(extension->number());
  }
}

}  // namespace attnd::server
