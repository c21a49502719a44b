#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "attn/v1/attention.grpc.pb.h"
#include "server/config/options.h"
#include "server/program/frame_reads.h"
#include "server/program/heap.h"
#include "tests/bench/echo_grpc.h"
#include "tests/bench/echo_peers.h"

namespace attnd::bench {
namespace {

using RawService = attn::v1::AttentionService::WithRawCallbackMethod_Forward<
    attn::v1::AttentionService::Service>;

// Output memory, kept for the next call once gRPC has let go of it.
class Outputs {
 public:
  char* Take(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) {
      return static_cast<char*>(std::malloc(bytes));
    }
    char* memory = free_.back();
    free_.pop_back();
    return memory;
  }
  static void Return(void* memory) {
    Outputs& outputs = Get();
    std::lock_guard<std::mutex> lock(outputs.mutex_);
    outputs.free_.push_back(static_cast<char*>(memory));
  }
  static Outputs& Get() {
    static Outputs* const outputs = new Outputs;
    return *outputs;
  }

 private:
  std::mutex mutex_;
  std::vector<char*> free_;  // all of one size, as the benchmark's calls are
};

// Copies all of `buffer` to `to`.
void CopySlices(const grpc::ByteBuffer& buffer, char* to) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) std::abort();
  for (const grpc::Slice& slice : slices) {
    std::memcpy(to, slice.begin(), slice.size());
    to += slice.size();
  }
}

// Received slices go into staging in one copy, the first third of it into the
// output in another; the output is sent from where it is.
class RawEcho : public RawService {
 public:
  grpc::ServerUnaryReactor* Forward(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override {
    const size_t in = request->Length(), out = in / 3;
    char* staging;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (staging_.size() < in) staging_.resize(in);
      staging = staging_.data();
    }
    CopySlices(*request, staging);
    const_cast<grpc::ByteBuffer*>(request)->Clear();
    char* output = Outputs::Get().Take(out);
    std::memcpy(output, staging, out);
    grpc::Slice slice(output, out, Outputs::Return, output);
    *response = grpc::ByteBuffer(&slice, 1);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  std::mutex mutex_;
  std::vector<char> staging_;  // one call at a time, as the benchmark does
};

// Waits for one callback.
class Done {
 public:
  void Set(grpc::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = std::move(status);
    done_ = true;
    changed_.notify_one();
  }
  grpc::Status Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  grpc::Status status_;
};

void Serve(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  // A process like attnd's.
  server::ReadWholeFrames();
  server::LimitHeap(server::ServerOptions().memory_limit_bytes);
  RawEcho service;
  ServeEcho(service, credentials);
}

EchoCall Connect(const std::shared_ptr<grpc::Channel>& channel) {
  auto stub = std::make_shared<grpc::GenericStub>(channel);
  return [stub](const Exchange& exchange) {
    std::vector<grpc::Slice> slices;
    for (const std::byte* in : exchange.in) {
      slices.emplace_back(in, exchange.bytes, grpc::Slice::STATIC_SLICE);
    }
    grpc::ByteBuffer request(slices.data(), slices.size()), response;
    grpc::ClientContext context;
    Done done;
    stub->UnaryCall(&context, "/attn.v1.AttentionService/Forward", {}, &request,
                    &response,
                    [&done](grpc::Status s) { done.Set(std::move(s)); });
    const grpc::Status status = done.Wait();
    CheckEcho("raw", status, response.Length(), exchange);
    CopySlices(response, reinterpret_cast<char*>(exchange.out));
  };
}

}  // namespace

void ServeRawEcho() { Serve(grpc::InsecureServerCredentials()); }

void ServeRawEchoByTls(const std::string& certificate, const std::string& key) {
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({key, certificate});
  Serve(grpc::SslServerCredentials(options));
}

EchoCall ConnectRawEcho(const std::string& target) {
  return Connect(ConnectEcho(target));
}

EchoCall ConnectRawEchoByTls(const std::string& target, const std::string& ca) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ca;
  return Connect(ConnectEcho(target, grpc::SslCredentials(options)));
}

}  // namespace attnd::bench
