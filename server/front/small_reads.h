#ifndef ATTND_SERVER_FRONT_SMALL_READS_H_
#define ATTND_SERVER_FRONT_SMALL_READS_H_

// Looks at memory while gRPC reads messages that are to be small. gRPC takes a
// message however long it is, and tells nobody of its length before all of it
// is here (message_watch.h does the same for those that have room). One alarm
// for all of them, as peers may have many calls whose message never comes. No
// gRPC in here.

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/transfer/alarms.h"

namespace attnd::server {

// Who reads a message. On the alarms' thread, so it must not block.
class SmallReader {
 public:
  virtual ~SmallReader() = default;
  // There is too little memory to go on reading.
  virtual void OnExcess() = 0;
};

// Thread-safe.
class SmallReads {
 public:
  static constexpr absl::Duration kLookAtMemory = absl::Milliseconds(3);

  // `excess_memory`: see excess_memory.h; may be empty, and then nobody is
  // told. `alarms` outlives it.
  SmallReads(Alarms& alarms, std::function<int64_t()> excess_memory)
      : alarms_(alarms), excess_memory_(std::move(excess_memory)) {}
  // No alarm rings any more by then.
  ~SmallReads() = default;

  // `reader` reads from now on, until it has ended, been told or gone.
  void Begin(const std::shared_ptr<SmallReader>& reader);
  void End(const SmallReader& reader);

 private:
  void Look();

  Alarms& alarms_;
  const std::function<int64_t()> excess_memory_;
  Mutex mutex_;
  absl::flat_hash_map<const SmallReader*, std::weak_ptr<SmallReader>> readers_
      ABSL_GUARDED_BY(mutex_);
  bool looking_ ABSL_GUARDED_BY(mutex_) = false;  // an alarm is set
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_FRONT_SMALL_READS_H_
