#ifndef ATTND_SERVER_FRONT_HEALTH_H_
#define ATTND_SERVER_FRONT_HEALTH_H_

// Whether the server serves, and who wants to hear of it when that changes.
// health_service.h tells clients. No gRPC in here.

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace attnd::server {

// Who is told. On the thread of whoever changes it, so it must not block; may
// come when nothing has changed, and look at what is so now.
class HealthWatcher {
 public:
  virtual ~HealthWatcher() = default;
  virtual void OnHealth() = 0;
};

// Thread-safe.
class Health {
 public:
  // Of a server over so many devices, which does not serve yet.
  explicit Health(int devices) : devices_left_(devices) {}

  // Whether it answers for a service of this name: for attention and, as "",
  // for the server as a whole, both of which always have the same health.
  static bool Knows(absl::string_view service);

  // It listens.
  void Started();
  // A device has left service.
  void DeviceLeft();
  // It takes no new work any more.
  void Draining();
  // Its clients are to go.
  void Ended();

  bool serving() const;
  bool ended() const;
  // For people: "serving", or why it does not.
  absl::string_view Describe() const;

  // Tells `watcher` of every change until it is removed or gone.
  void Watch(const std::shared_ptr<HealthWatcher>& watcher);
  void Unwatch(const HealthWatcher& watcher);

 private:
  bool IsServing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell();

  mutable Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int devices_left_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const HealthWatcher*, std::weak_ptr<HealthWatcher>>
      watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_HEALTH_H_
