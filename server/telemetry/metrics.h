#ifndef ATTND_SERVER_TELEMETRY_METRICS_H_
#define ATTND_SERVER_TELEMETRY_METRICS_H_

// What the server counts, in Prometheus' terms. Labels never come from
// requests, so the number of series is fixed. No gRPC in here.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/identity/callers.h"
#include "server/net/connection_table.h"
#include "server/net/gate_stats.h"
#include "server/region/region_stats.h"
#include "server/scheduling/scheduler.h"
#include "server/work/work.h"

namespace attnd::server {

// An Exchange counts once for each of its streams; what it computes counts
// under the operation.
enum class Method : uint8_t { kForward, kBackward, kGetServerInfo, kExchange };
inline constexpr int kMethods = 4;

// Messages that are received (front/upload_room.h).
struct UploadStats {
  int64_t reserved_bytes = 0;
  int64_t waiting = 0;
  int64_t refused = 0;  // since the start
};

// Thread-safe.
class Metrics : public prometheus::Collectable {
 public:
  // `devices` names them for labels; the others are called at every scrape.
  Metrics(
      std::vector<std::string> devices, std::function<SchedulerStats()> stats,
      std::function<UploadStats()> uploads = [] { return UploadStats(); },
      std::function<ConnectionStats()> connections =
          [] { return ConnectionStats(); },
      std::function<RegionStats()> regions = [] { return RegionStats(); },
      std::function<CallerStats()> callers = [] { return CallerStats(); },
      std::function<GateStats()> gate = [] { return GateStats(); });

  // A call has ended, and this is the code that its client got.
  void CallEnded(Method method, absl::StatusCode code, absl::Duration total,
                 int64_t received_bytes, int64_t sent_bytes);
  // A device has run a request.
  void WorkDone(Method method, const Phases& phases, int batch_requests,
                double flops);

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

  void AddGauges(std::vector<prometheus::MetricFamily>& to) const;
  void AddConnections(std::vector<prometheus::MetricFamily>& to) const;
  void AddRefusedCalls(std::vector<prometheus::MetricFamily>& to) const;
  void AddGate(std::vector<prometheus::MetricFamily>& to) const;
  void AddRegions(std::vector<prometheus::MetricFamily>& to) const;

  const std::vector<std::string> devices_;
  const std::function<SchedulerStats()> stats_;
  const std::function<UploadStats()> uploads_;
  const std::function<ConnectionStats()> connections_;
  const std::function<RegionStats()> regions_;
  const std::function<CallerStats()> callers_;
  const std::function<GateStats()> gate_;
  prometheus::Registry registry_;
  std::array<PerMethod, kMethods> methods_;
  prometheus::Histogram* batch_requests_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_METRICS_H_
