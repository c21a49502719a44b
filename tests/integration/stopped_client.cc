// stopped_client HOST:PORT: sends a request whose response is far larger than
// what a connection holds, reads none of it and stops itself by SIGSTOP.

#include <signal.h>

#include "attn/v1/attention.pb.h"
#include "tests/integration/http2.h"
#include "tests/server/bad_requests.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  attn::v1::ForwardRequest request;
  // O: 8 MiB out of 33 KiB.
  *request.mutable_q() = attnd::server::RandomTensor({1, 8192, 1, 1});
  *request.mutable_k() = attnd::server::RandomTensor({1, 1, 1, 1});
  *request.mutable_v() = attnd::server::RandomTensor({1, 1, 1, 256});
  attnd::testing::SendRawHttp2Call(argv[1], "/attn.v1.AttentionService/Forward",
                                   {}, request.SerializeAsString());
  return raise(SIGSTOP);
}
