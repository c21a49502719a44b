#ifndef ATTND_CLIENT_ATTNLOAD_LOAD_H_
#define ATTND_CLIENT_ATTNLOAD_LOAD_H_

// Runs one load level against a server.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "attnd/client.h"
#include "client/attnload/payload.h"
#include "client/attnload/recorder.h"
#include "client/attnload/shape.h"

namespace attnd::attnload {

// A mix with its payloads, made once for all levels.
class Workload {
 public:
  Workload(std::vector<Shape> shapes, uint64_t seed);

  const std::vector<Shape>& shapes() const { return shapes_; }
  Payload& payload(size_t shape) { return *payloads_[shape]; }

 private:
  std::vector<Shape> shapes_;
  std::vector<std::unique_ptr<Payload>> payloads_;
};

class PlacedTensors;

struct LoadOptions {
  // Closed loop: `level` requests are always in flight, and a request is due
  // when another has ended. Open loop: requests are due at random times,
  // `level` per second, whatever became of earlier ones; latency counts from
  // then, so that a server that stalls cannot hide whom it kept waiting.
  bool open_loop = false;
  double level = 1;

  absl::Duration warm_up = absl::Seconds(1);
  absl::Duration duration = absl::Seconds(10);  // after warm-up
  int64_t requests = 0;          // > 0: ends after so many instead
  int64_t max_in_flight = 1024;  // open loop: later ones wait, and it counts
  client::CallOptions call;
  double check_share = 0.01;  // of answers
  int check_rows = 2;         // of each
  uint64_t seed = 1;
  // Where calls' tensors lie, with a slot for each in flight; null: in memory
  // of this process' own.
  PlacedTensors* placed = nullptr;
  // Nothing is sent any more once it is true; null: nobody stops the load.
  const std::atomic<bool>* stop = nullptr;

  // Requests that may be in flight.
  int64_t limit() const;
};

// Called about once a second with what has been measured so far.
using Progress = std::function<void(const Results&, int64_t in_flight,
                                    absl::Duration since)>;

// Returns when every request has ended.
Results RunLoad(client::Client& client, Workload& workload,
                const LoadOptions& options, const Progress& progress);

}  // namespace attnd::attnload

#endif  // ATTND_CLIENT_ATTNLOAD_LOAD_H_
