#include "server/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "prometheus/text_serializer.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;

std::string Text(const Metrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect());
}

TEST(Metrics, CountsCallsByMethodAndCode) {
  Metrics metrics({"cpu:0"}, [] { return SchedulerStats(); });
  metrics.CallEnded(Method::kForward, absl::StatusCode::kOk,
                    absl::Milliseconds(3), 100, 50);
  metrics.CallEnded(Method::kForward, absl::StatusCode::kOk,
                    absl::Milliseconds(3), 100, 50);
  metrics.CallEnded(Method::kBackward, absl::StatusCode::kResourceExhausted,
                    absl::Milliseconds(3), 7, 0);
  metrics.CallEnded(Method::kBackward, static_cast<absl::StatusCode>(99),
                    absl::Milliseconds(3), 7, 0);
  const std::string text = Text(metrics);
  const auto calls = [](const char* code, const char* method, int count) {
    return HasSubstr(std::string("attnd_requests_total{code=\"") + code +
                     "\",method=\"" + method + "\"} " + std::to_string(count));
  };
  EXPECT_THAT(text, calls("OK", "Forward", 2));
  EXPECT_THAT(text, calls("RESOURCE_EXHAUSTED", "Backward", 1));
  EXPECT_THAT(text, calls("UNKNOWN", "Backward", 1));
  EXPECT_THAT(text, calls("OK", "Backward", 0));
  EXPECT_THAT(text,
              HasSubstr("attnd_received_bytes_total{method=\"Forward\"} 200"));
  EXPECT_THAT(text,
              HasSubstr("attnd_sent_bytes_total{method=\"Forward\"} 100"));
  EXPECT_THAT(text, HasSubstr("attnd_request_duration_seconds_count{method="
                              "\"Forward\"} 2"));
}

TEST(Metrics, ObservesPhasesAndBatches) {
  Metrics metrics({"cpu:0"}, [] { return SchedulerStats(); });
  Phases phases;
  phases.compute = absl::Milliseconds(250);
  metrics.WorkDone(Method::kForward, phases, 3, 1000);
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("attnd_phase_duration_seconds_sum{method="
                              "\"Forward\",phase=\"compute\"} 0.25"));
  EXPECT_THAT(text, HasSubstr("attnd_batch_requests_sum 3"));
  EXPECT_THAT(text, HasSubstr("attnd_floating_point_operations_total{method="
                              "\"Forward\"} 1000"));
}

TEST(Metrics, ReadsTheSchedulerAtEachScrape) {
  SchedulerStats stats;
  Metrics metrics({"cpu:0", "cpu:1"}, [&stats] { return stats; });
  stats.queued_requests = 4;
  stats.account_bytes = 12345;
  stats.device_in_service = {true, false};
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("attnd_queue_requests 4"));
  EXPECT_THAT(text, HasSubstr("attnd_account_bytes 12345"));
  EXPECT_THAT(text, HasSubstr("attnd_device_in_service{device=\"cpu:0\"} 1"));
  EXPECT_THAT(text, HasSubstr("attnd_device_in_service{device=\"cpu:1\"} 0"));
  EXPECT_THAT(text, HasSubstr("attnd_build_info{version="));
}

TEST(Metrics, HasAFixedNumberOfSeries) {
  Metrics metrics({"cpu:0"}, [] { return SchedulerStats(); });
  const auto lines = [&metrics] {
    const std::string text = Text(metrics);
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto before = lines();
  for (int code = 0; code < 40; ++code) {
    metrics.CallEnded(Method::kForward, static_cast<absl::StatusCode>(code),
                      absl::Seconds(code), code, code);
  }
  EXPECT_EQ(lines(), before);
}

TEST(Metrics, CountsConnections) {
  ConnectionStats connections;
  Metrics metrics(
      {"cpu:0"}, [] { return SchedulerStats(); }, [] { return UploadStats(); },
      [&connections] { return connections; });
  connections = {3, 9, {1, 2, 4}};
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("\nattnd_connections 3\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_accepted_connections_total 9\n"));
  const auto refused = [](const char* reason, int count) {
    return HasSubstr(
        std::string("\nattnd_refused_connections_total{reason=\"") + reason +
        "\"} " + std::to_string(count) + "\n");
  };
  EXPECT_THAT(text, refused("max_connections", 1));
  EXPECT_THAT(text, refused("max_connections_per_client", 2));
  EXPECT_THAT(text, refused("descriptors", 4));
}

TEST(Metrics, CountsCallsOfClientsThatMayNotOrHaveEnough) {
  SchedulerStats scheduler;
  scheduler.refused_by_client_bytes = 4;
  scheduler.refused_by_client_flops = 5;
  Metrics metrics(
      {"cpu:0"}, [&] { return scheduler; }, [] { return UploadStats(); },
      [] { return ConnectionStats(); }, [] { return RegionStats(); },
      [] {
        return CallerStats{{1, 2, 3}};
      });
  const std::string text = Text(metrics);
  int count = 0;
  for (const char* reason :
       {"no_identity", "token", "max_client_rate", "max_client_queue_bytes",
        "max_client_queue_flops"}) {
    EXPECT_THAT(text,
                HasSubstr(std::string("\nattnd_refused_calls_total{reason=\"") +
                          reason + "\"} " + std::to_string(++count) + "\n"));
  }
}

TEST(Metrics, CountsRegions) {
  RegionStats regions;
  Metrics metrics(
      {"cpu:0"}, [] { return SchedulerStats(); }, [] { return UploadStats(); },
      [] { return ConnectionStats(); }, [&regions] { return regions; });
  regions.leases = 1;
  regions.leased_bytes = 2;
  regions.imports = 3;
  regions.imported_bytes = 4;
  regions.free_bytes = 5;
  regions.replaced = 6;
  regions.pinned_pieces = 8;
  regions.connections = 7;
  regions.refused[static_cast<int>(RegionRefusal::kMemory)] = 8;
  regions.refused[static_cast<int>(RegionRefusal::kDraining)] = 9;
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("\nattnd_region_leases 1\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_region_leased_bytes 2\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_region_imports 3\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_region_imported_bytes 4\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_region_free_bytes 5\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_region_slabs_replaced_total 6\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_region_pinned_pieces_total 8\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_region_connections 7\n"));
  EXPECT_THAT(text,
              HasSubstr("\nattnd_region_refused_total{reason=\"memory\"} 8\n"));
  EXPECT_THAT(
      text, HasSubstr("\nattnd_region_refused_total{reason=\"draining\"} 9\n"));
}

}  // namespace
}  // namespace attnd::server
