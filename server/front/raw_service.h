#ifndef ATTND_SERVER_FRONT_RAW_SERVICE_H_
#define ATTND_SERVER_FRONT_RAW_SERVICE_H_

// A service of gRPC that needs no generated code: its methods are names and
// what serves their calls. To gRPC all of them are streams of raw messages,
// which looks no different to clients; unary_stream.h says why. Methods that
// nobody added are UNIMPLEMENTED.

#include <deque>
#include <functional>
#include <memory>

#include "grpcpp/impl/codegen/service_type.h"
#include "server/front/grpc_call.h"
#include "server/front/io_threads.h"

namespace attnd::server {

class RawService : public grpc::Service {
 public:
  // Serves calls on `threads`, from when the server has been built until it
  // shuts down; this outlives both.
  void Serve(IoThreads& threads);

 protected:
  // The method at `path`, a constant: "/package.Service/Method". Before the
  // service is registered.
  void Add(const char* path, std::function<std::shared_ptr<GrpcCall>()> make);

 private:
  std::deque<GrpcCall::Kind> kinds_;  // calls refer to them
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_RAW_SERVICE_H_
