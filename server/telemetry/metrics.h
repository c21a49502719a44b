#ifndef ATTND_SERVER_TELEMETRY_METRICS_H_
#define ATTND_SERVER_TELEMETRY_METRICS_H_

// What the server counts, in Prometheus' terms. Labels never come from
// requests, so the number of series is fixed. No gRPC in here.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/scheduling/call_refusal.h"
#include "server/telemetry/call_record.h"
#include "server/telemetry/server_stats.h"

namespace attnd::server {

// Thread-safe.
class Metrics : public prometheus::Collectable {
 public:
  // `stats` is called at every scrape.
  Metrics(ServerFacts facts, std::function<ServerStats()> stats);

  // `is_slow`: it took longer than --slow_time.
  void CallEnded(const CallRecord& call, bool is_slow);

  // By CallRefusal, since the start. `callers`: what is counted where calls
  // come in, as it is not in their status.
  std::array<int64_t, kCallRefusals> RefusedCalls(
      const CallerStats& callers) const;

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  static constexpr int kCodes = 17;
  static constexpr int kPhases = 4;

  struct PerMethod {
    std::array<prometheus::Counter*, kCodes> calls{};
    std::array<prometheus::Histogram*, kPhases> phases{};
    prometheus::Histogram* duration = nullptr;
    prometheus::Counter* received = nullptr;
    prometheus::Counter* sent = nullptr;
    prometheus::Counter* flops = nullptr;
  };

  void CountRun(const RunRecord& run);

  const ServerFacts facts_;
  const std::function<ServerStats()> stats_;
  prometheus::Registry registry_;
  std::array<PerMethod, kMethods> methods_;
  prometheus::Histogram* batch_requests_;
  prometheus::Counter* slow_calls_;
  std::array<std::atomic<int64_t>, kCallRefusals> refused_{};  // by CallRefusal
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_METRICS_H_
