#ifndef ATTND_SERVER_NET_TLS_DOOR_H_
#define ATTND_SERVER_NET_TLS_DOOR_H_

// Where connections are encrypted before anybody speaks HTTP/2 on them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "base/tls/tls_stream.h"
#include "server/net/origin.h"
#include "server/tls/credentials_watch.h"

namespace attnd::server {

struct TlsDoorParts {
  // Outlives the door, which has it look into its files every second.
  tls::CredentialsWatch* credentials = nullptr;
  // A handshake that takes longer is given up.
  absl::Duration handshake_time;
  // All are called on the door's thread, which waits for them.
  // A connection whose handshake is done.
  std::function<void(Descriptor, std::unique_ptr<TlsStream>, const Origin&)>
      on_ready;
  // One that has failed; `why` has nothing in it that the peer chose.
  std::function<void(absl::string_view why, const Origin&)> on_failure;
  // Every second. `renewed` is what Look() says.
  std::function<void(const std::optional<absl::Status>& renewed)> on_second;
};

// Thread-safe. One thread, for handshakes only, so that none of them keeps a
// call waiting.
class TlsDoor {
 public:
  // RESOURCE_EXHAUSTED: no descriptor or no thread.
  static absl::StatusOr<std::unique_ptr<TlsDoor>> Start(TlsDoorParts parts);
  // Closes connections whose handshakes are not done.
  ~TlsDoor();

  // A connection that was just accepted.
  void Add(Descriptor connection, const Origin& origin);

 private:
  struct Arrival {
    Descriptor connection;
    Origin origin;
    absl::Time until;
  };
  struct Handshake {
    Arrival arrival;
    std::unique_ptr<TlsStream> stream;
    uint32_t watched = 0;  // the events that epoll waits for
  };

  explicit TlsDoor(TlsDoorParts parts) : parts_(std::move(parts)) {}
  void Run();
  void Begin(Arrival arrival);
  // Of the handshake on the descriptor `fd`.
  void GoOn(int fd);
  void Fail(int fd, absl::string_view why);
  void GiveUp(absl::Time now);

  const TlsDoorParts parts_;
  Descriptor epoll_;
  Descriptor wake_;  // an eventfd: somebody has come, or it shall end

  Mutex mutex_;
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's.
  absl::flat_hash_map<int, Handshake> handshakes_;  // by descriptor
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_TLS_DOOR_H_
