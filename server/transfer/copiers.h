#ifndef ATTND_SERVER_TRANSFER_COPIERS_H_
#define ATTND_SERVER_TRANSFER_COPIERS_H_

// Threads that copy what arrives to where it is computed, so that neither
// gRPC's threads nor lanes do. No gRPC in here.

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "base/mutex.h"

namespace attnd::server {

// Thread-safe. Clients that have something to copy take turns.
class Copiers {
 public:
  explicit Copiers(int threads);
  // Runs what was added.
  ~Copiers();
  Copiers(const Copiers&) = delete;
  Copiers& operator=(const Copiers&) = delete;

  // Runs `copy` once, soon, on one of the threads. It may wait for the device,
  // never for a client.
  void Add(const std::string& client, absl::AnyInvocable<void()> copy);

 private:
  void Loop();

  Mutex mutex_;
  Condition added_;
  // Those with anything to copy.
  absl::flat_hash_map<std::string, std::deque<absl::AnyInvocable<void()>>>
      copies_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mutex_);  // each client once
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TRANSFER_COPIERS_H_
