#ifndef ATTND_SERVER_NET_ACCEPTOR_H_
#define ATTND_SERVER_NET_ACCEPTOR_H_

// Accepts connections and hands them to whoever serves them. gRPC's own
// listener (1.51) knows no limit on connections, and never accepts again once
// descriptors have run out.

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "server/net/accept_errors.h"
#include "server/net/connection_limits.h"
#include "server/net/connection_table.h"
#include "server/net/hang_up_watch.h"
#include "server/net/origin.h"

namespace attnd::server {

// A socket to accept on, and who gets what it accepts. It must not block.
// hand_over is called on the acceptor's thread, which waits for it; it owns the
// descriptor, which does not block either, and closes it when the connection
// has ended.
struct Door {
  Descriptor listener;
  std::function<void(Descriptor connection, const Origin& origin)> hand_over;
};

// Told of each connection that is refused, on the acceptor's thread, which
// waits for it.
using OnRefusal = std::function<void(Refusal why, const Origin& origin)>;

// One thread, which waits for nobody. A connection that `table` refuses is
// closed at once, which a gRPC client sees as UNAVAILABLE. Some descriptors are
// kept in reserve: without any other, connections are accepted with these and
// closed, so that none waits in vain, and accepting goes on when there are
// others. Who owns a connection is told twice that its peer has hung up.
class Acceptor {
 public:
  // Accepts once it returns. `table` must outlive it; `on_refusal` may be
  // empty. RESOURCE_EXHAUSTED: no descriptor or no thread to do so with.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Start(
      std::vector<Door> doors, ConnectionTable& table, OnRefusal on_refusal);
  // Stops listening. Nothing is handed over any more once it returns; what was,
  // goes on.
  ~Acceptor();

 private:
  // How accepting one connection went.
  enum class Outcome { kAccepted, kNobodyWaits, kCannot };

  Acceptor(std::vector<Door> doors, ConnectionTable& table,
           OnRefusal on_refusal);
  void Run();
  // Accepts whoever waits. False: it cannot, and is to be tried later.
  bool AcceptSome(const Door& door);
  Outcome AcceptOne(const Door& door);
  Outcome RefuseWithReserve(const Door& door);

  const std::vector<Door> doors_;
  ConnectionTable& table_;
  const OnRefusal on_refusal_;
  Descriptor stop_;  // an eventfd, readable once it shall end
  // The thread's, once it runs.
  DescriptorReserve reserve_;
  HangUpWatch hang_ups_;
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_ACCEPTOR_H_
