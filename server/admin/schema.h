#ifndef ATTND_SERVER_ADMIN_SCHEMA_H_
#define ATTND_SERVER_ADMIN_SCHEMA_H_

// What reflection shows: the files of the services that are served, of the
// details that errors have, and what these import. No gRPC in here.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "grpc/reflection/v1/reflection.pb.h"

namespace attnd::server {

// Thread-safe once it is built.
class Schema {
 public:
  // Shows `services`, by their full names, all of them linked into the program.
  explicit Schema(const std::vector<std::string>& services);

  // The response to any request, with an ErrorResponse where there is no other:
  // NOT_FOUND, or INVALID_ARGUMENT for a request that asks for nothing.
  grpc::reflection::v1::ServerReflectionResponse Answer(
      const grpc::reflection::v1::ServerReflectionRequest& request) const;

 private:
  using Response = grpc::reflection::v1::ServerReflectionResponse;

  // What it imports goes first.
  void Add(const google::protobuf::FileDescriptor& file);
  void AnswerFile(const google::protobuf::FileDescriptor* file,
                  absl::string_view asked_for, Response& response) const;
  void AnswerExtension(const grpc::reflection::v1::ExtensionRequest& extension,
                       Response& response) const;
  void AnswerExtensionNumbers(const std::string& type,
                              Response& response) const;

  std::vector<std::string> services_;
  // Of its own, so that it knows nothing else that is linked, and keeps nothing
  // of what is asked for in vain.
  google::protobuf::DescriptorPool pool_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_SCHEMA_H_
