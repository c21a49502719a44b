#ifndef ATTND_SERVER_FRONT_STREAM_LIMITS_H_
#define ATTND_SERVER_FRONT_STREAM_LIMITS_H_

// How many calls of a kind there may be at once: of all clients, and of one.
// For calls that hold memory for as long as their client likes. No gRPC in
// here.

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace attnd::server {

// Thread-safe.
class StreamLimits {
 public:
  // One call's place, which it gives back when it goes. Movable.
  class Place {
   public:
    Place(Place&& other) noexcept;
    Place& operator=(Place&&) = delete;
    ~Place();

   private:
    friend class StreamLimits;
    Place(StreamLimits& limits, std::string client)
        : limits_(&limits), client_(std::move(client)) {}
    StreamLimits* limits_;  // null: moved from
    std::string client_;
  };

  // `what` names them in errors: "health watches".
  StreamLimits(absl::string_view what, int most, int most_per_client)
      : what_(what), most_(most), most_per_client_(most_per_client) {}

  // A place for a call of `client`; this outlives it. RESOURCE_EXHAUSTED: the
  // client has as many as one may have, or all clients have as many as there
  // may be.
  absl::StatusOr<Place> Enter(const std::string& client);

 private:
  void Leave(const std::string& client);

  const std::string what_;
  const int most_;
  const int most_per_client_;
  Mutex mutex_;
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  // Those that have one, and so at most as many as there are calls.
  absl::flat_hash_map<std::string, int> by_client_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_STREAM_LIMITS_H_
