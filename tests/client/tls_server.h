#ifndef ATTND_TESTS_CLIENT_TLS_SERVER_H_
#define ATTND_TESTS_CLIENT_TLS_SERVER_H_

// A server in this process, by gRPC's own TLS or by none, that answers O = Q,
// LSE = 0, and remembers who called it.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attn/v1/attention.grpc.pb.h"
#include "attnd/client.h"
#include "tests/certificates.h"
#include "tests/hang_limit.h"

namespace attnd::client {

// What the server knew of a call.
struct SeenCall {
  std::vector<std::string> authorization;  // each that there was
  std::string common_name;                 // of the client's certificate
};

class TlsServer final : public attn::v1::AttentionService::Service {
 public:
  // One without TLS, over TCP or at `address`.
  explicit TlsServer(const std::string& address = "127.0.0.1:0") {
    Start(address, grpc::InsecureServerCredentials());
  }
  // Shows `identity`; requires a certificate that `client_ca` signed, if given.
  explicit TlsServer(const testing::Identity& identity,
                     const std::string& client_ca = "",
                     const std::string& address = "127.0.0.1:0") {
    grpc::SslServerCredentialsOptions options(
        client_ca.empty()
            ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = client_ca;
    options.pem_key_cert_pairs.push_back({identity.key, identity.chain});
    Start(address, grpc::SslServerCredentials(options));
  }

  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Calls from now on end with `status`.
  void Refuse(grpc::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    refusal_ = std::move(status);
  }

  std::vector<SeenCall> seen() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return seen_;
  }

  grpc::Status GetServerInfo(
      grpc::ServerContext* context, const attn::v1::GetServerInfoRequest*,
      attn::v1::GetServerInfoResponse* response) override {
    response->set_version("1");
    return See(*context);
  }
  grpc::Status Forward(grpc::ServerContext* context,
                       const attn::v1::ForwardRequest* request,
                       attn::v1::ForwardResponse* response) override {
    *response->mutable_o() = request->q();
    if (request->lse().want()) {
      attn::v1::Tensor& lse = *response->mutable_lse();
      lse.set_dtype(attn::v1::DATA_TYPE_F32);
      int64_t bytes = sizeof(float);
      for (const int i : {0, 2, 1}) {
        lse.add_shape(request->q().shape(i));
        bytes *= request->q().shape(i);
      }
      lse.set_data(std::string(bytes, '\0'));
    }
    response->mutable_report()->set_device("echo");
    return See(*context);
  }
  // Sees and refuses.
  grpc::Status Exchange(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<attn::v1::ExchangeResponse,
                               attn::v1::ExchangeRequest>*) override {
    const grpc::Status status = See(*context);
    return status.ok() ? grpc::Status(grpc::StatusCode::INTERNAL, "seen")
                       : status;
  }

 private:
  void Start(const std::string& address,
             const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials, &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  grpc::Status See(const grpc::ServerContext& context) {
    SeenCall call;
    const auto values = context.client_metadata().equal_range("authorization");
    for (auto value = values.first; value != values.second; ++value) {
      call.authorization.emplace_back(value->second.begin(),
                                      value->second.end());
    }
    for (const grpc::string_ref& name :
         context.auth_context()->FindPropertyValues(
             GRPC_X509_CN_PROPERTY_NAME)) {
      call.common_name.assign(name.begin(), name.end());
    }
    std::lock_guard<std::mutex> lock(mutex_);
    seen_.push_back(std::move(call));
    return refusal_;
  }

  int port_ = 0;
  mutable std::mutex mutex_;
  grpc::Status refusal_;  // of every call, when not OK
  std::vector<SeenCall> seen_;
  std::unique_ptr<grpc::Server> server_;
};

// One attempt: what it says is what the test wants to know.
inline ClientOptions OneAttempt() {
  ClientOptions options;
  options.max_attempts = 1;
  return options;
}

// What a call with `options` to `target` ends with.
inline absl::Status Call(const std::string& target,
                         const ClientOptions& options) {
  const auto client = Client::Create(target, options);
  if (!client.ok()) return client.status();
  return (*client)->GetServerInfo({testing::kHangLimit}).status();
}

// A small forward whose O is to be its Q.
struct SmallForward {
  SmallForward() {
    std::iota(q.begin(), q.end(), 0.5f);
    const std::vector<int64_t> shape = {1, 2, 2, 4};
    call.q = call.k = call.v = {DType::kF32, shape, q.data()};
    call.o = {DType::kF32, shape, o.data()};
  }

  std::vector<float> q = std::vector<float>(16);
  std::vector<float> o = std::vector<float>(16, -1);
  ForwardCall call;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_TLS_SERVER_H_
