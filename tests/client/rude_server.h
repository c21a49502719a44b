#ifndef ATTND_TESTS_CLIENT_RUDE_SERVER_H_
#define ATTND_TESTS_CLIENT_RUDE_SERVER_H_

// A server that says what a terminal would obey.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "attn/v1/attention.grpc.pb.h"

namespace attnd {

class RudeServer : public attn::v1::AttentionService::Service {
 public:
  RudeServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status GetServerInfo(
      grpc::ServerContext*, const attn::v1::GetServerInfoRequest*,
      attn::v1::GetServerInfoResponse* response) override {
    response->set_version("1\x1b[31m");
    response->set_server_instance_id("\x1b]0;title\x07");
    response->add_features("a\r\nSERVING");
    attn::v1::Device& device = *response->add_devices();
    device.set_kind("cpu\x7f");
    device.set_name(
        "name\xc2\x9b"
        "2J");
    return grpc::Status::OK;
  }
  grpc::Status Forward(grpc::ServerContext*, const attn::v1::ForwardRequest*,
                       attn::v1::ForwardResponse*) override {
    return {grpc::StatusCode::INTERNAL, "\x1b[2J\nattnctl: all is well"};
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The bytes of a text that a terminal may obey.
inline std::string Controls(const std::string& text) {
  std::string controls;
  for (const char c : text) {
    if (c != '\n' && !absl::ascii_isprint(static_cast<unsigned char>(c))) {
      controls += c;
    }
  }
  return controls;
}

}  // namespace attnd

#endif  // ATTND_TESTS_CLIENT_RUDE_SERVER_H_
