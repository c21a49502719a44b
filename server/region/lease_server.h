#ifndef ATTND_SERVER_REGION_LEASE_SERVER_H_
#define ATTND_SERVER_REGION_LEASE_SERVER_H_

// The region socket: who connects there, what they ask for, and how long they
// have it. proto/attn/v1/region.proto has the rules.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "server/region/keeper.h"
#include "server/region/lease_door.h"
#include "server/region/lessor.h"

namespace attnd::server {

// One thread, which waits for nobody, and another on which clients' memory is
// imported. The first takes in no descriptor of a client's: closing one may
// take as long as the client likes, where it is of a file system of its own.
class LeaseServer {
 public:
  // The longest request. What is asked for takes some 40 bytes.
  static constexpr size_t kMostRequestBytes = 1024;

  // Accepts once it returns; a client has `header_time` to say what it wants.
  // RESOURCE_EXHAUSTED: no descriptor or no thread.
  static absl::StatusOr<std::unique_ptr<LeaseServer>> Start(
      LeaseDoor::Parts door, absl::Duration header_time);
  // Ends every lease.
  ~LeaseServer();

  int connections() const;

 private:
  // What names a connection from its first moment on, unlike its descriptor.
  using Serial = uint64_t;
  enum class State : uint8_t { kAsking, kImporting, kLeased };
  struct Connection {
    Descriptor socket;
    uid_t user = 0;
    State state = State::kAsking;
    absl::Time deadline;  // while it asks
    std::string region;   // while it is leased
  };
  struct Imported {
    Serial serial = 0;
    absl::StatusOr<Lessor::Lease> lease;
  };

  LeaseServer(LeaseDoor::Parts door, absl::Duration header_time);
  void Run();
  int WaitMilliseconds() const;
  bool Watch(int epoll_operation, int fd, Serial serial, uint32_t events);

  void AcceptSome();
  void Add(Descriptor socket, uid_t user);
  void OnReady(Serial serial, bool has_ended);
  void OnRequest(Serial serial, Connection& of, bool has_ended);
  void OnWordOfLeased(Serial serial, Connection& of, bool has_ended);
  void LeaseHostMemory(Serial serial, Connection& of,
                       const attn::v1::LeaseHostMemory& asked);
  void BeginImport(Serial serial, Connection& of,
                   const attn::v1::ImportDeviceMemory& asked);
  absl::StatusOr<Lessor::Lease> ReceiveAndImport(int socket,
                                                 Lessor::Import import);
  void FinishImports();
  void Grant(Serial serial, Connection& of, const Lessor::Lease& lease);
  void RefuseLate();

  // Says so, and ends the connection.
  void Refuse(Serial serial, const absl::Status& status);
  void RefuseUnwatched(Serial serial);
  void RefuseRequest(Serial serial, absl::string_view why);
  void End(Serial serial);

  Lessor& lessor_;
  const absl::Duration header_time_;
  const std::string server_instance_id_;
  Descriptor epoll_;
  Descriptor wake_;  // an eventfd: it shall end, or something was imported
  std::shared_ptr<Keeper> importer_;
  std::thread thread_;

  // The thread's.
  LeaseDoor door_;
  Serial last_ = 1;  // those of what is no connection
  absl::flat_hash_map<Serial, Connection> open_;
  absl::btree_set<std::pair<absl::Time, Serial>> deadlines_;
  absl::Time rests_until_ = absl::InfinitePast();  // accepting nobody
  bool rests_ = false;

  mutable Mutex mutex_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  int connections_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Imported> imported_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_REGION_LEASE_SERVER_H_
