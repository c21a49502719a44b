#include "client/socket_mutator.h"

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "grpc/grpc.h"
#include "grpc/support/sync.h"

// gRPC tells of a socket before it connects it to whoever is in a channel's
// arguments as its "socket mutator". That can be set by its public headers, but
// is declared by none of them: this is how gRPC 1.51 has it
// (src/core/lib/iomgr/socket_mutator.h), whose own function fills it in.
struct grpc_mutate_socket_info;
struct grpc_socket_mutator_vtable {
  bool (*mutate_fd)(int fd, grpc_socket_mutator* mutator);
  int (*compare)(grpc_socket_mutator* a, grpc_socket_mutator* b);
  void (*destroy)(grpc_socket_mutator* mutator);
  // In place of the first, where it is not null.
  bool (*mutate_fd_2)(const grpc_mutate_socket_info* info,
                      grpc_socket_mutator* mutator);
};
struct grpc_socket_mutator {
  const grpc_socket_mutator_vtable* vtable;
  gpr_refcount refcount;
};
void grpc_socket_mutator_init(grpc_socket_mutator* mutator,
                              const grpc_socket_mutator_vtable* vtable);

namespace attnd::client {
namespace {

struct Mutator {
  grpc_socket_mutator base;  // first, as gRPC knows this by its address
  std::shared_ptr<TlsSockets> sockets;
};
static_assert(std::is_standard_layout_v<Mutator>);

Mutator* Of(grpc_socket_mutator* base) {
  return reinterpret_cast<Mutator*>(base);
}

constexpr grpc_socket_mutator_vtable kMutator = {
    [](int fd, grpc_socket_mutator* base) {
      return Of(base)->sockets->Protect(fd);
    },
    [](grpc_socket_mutator* a, grpc_socket_mutator* b) {
      if (std::less<>()(a, b)) return -1;
      return a == b ? 0 : 1;
    },
    [](grpc_socket_mutator* base) { delete Of(base); },
    nullptr,
};

}  // namespace

// A gRPC that has changed what is declared above would run into it, or, worse,
// would ask nobody, and send in clear.
bool CanProtectSockets() {
  static const bool known = absl::StartsWith(grpc_version_string(), "29.") ||
                            absl::StartsWith(grpc_version_string(), "1.51.");
  return known;
}

void ProtectSockets(std::shared_ptr<TlsSockets> sockets,
                    grpc::ChannelArguments& arguments) {
  auto mutator = std::make_unique<Mutator>();
  grpc_socket_mutator_init(&mutator->base, &kMutator);
  mutator->sockets = std::move(sockets);
  arguments.SetSocketMutator(&mutator.release()->base);
}

}  // namespace attnd::client
