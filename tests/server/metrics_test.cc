#include "server/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "prometheus/text_serializer.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const Metrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect());
}

CallRecord Ended(Method method, absl::StatusCode code, int64_t received = 0,
                 int64_t sent = 0) {
  CallRecord call;
  call.method = method;
  call.status = absl::Status(code, "why");
  call.code = code;
  call.total = absl::Milliseconds(3);
  call.received_bytes = received;
  call.sent_bytes = sent;
  return call;
}

TEST(Metrics, CountsCallsByMethodAndCode) {
  Metrics metrics({}, [] { return ServerStats(); });
  const CallRecord forward =
      Ended(Method::kForward, absl::StatusCode::kOk, 100, 50);
  metrics.CallEnded(forward, /*is_slow=*/false);
  metrics.CallEnded(forward, /*is_slow=*/true);
  metrics.CallEnded(
      Ended(Method::kBackward, absl::StatusCode::kResourceExhausted, 7),
      /*is_slow=*/false);
  metrics.CallEnded(
      Ended(Method::kBackward, static_cast<absl::StatusCode>(99), 7),
      /*is_slow=*/false);
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
  EXPECT_THAT(text, HasSubstr("\nattnd_slow_calls_total 1\n"));
}

TEST(Metrics, ObservesPhasesAndBatches) {
  Metrics metrics({}, [] { return ServerStats(); });
  CallRecord call = Ended(Method::kExchange, absl::StatusCode::kOk);
  call.run.emplace();
  call.run->phases.compute = absl::Milliseconds(250);
  call.run->batch_requests = 3;
  call.run->flops = 1000;
  metrics.CallEnded(call, /*is_slow=*/false);
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("attnd_phase_duration_seconds_sum{method="
                              "\"Forward\",phase=\"compute\"} 0.25"));
  EXPECT_THAT(text, HasSubstr("attnd_batch_requests_sum 3"));
  EXPECT_THAT(text, HasSubstr("attnd_floating_point_operations_total{method="
                              "\"Forward\"} 1000"));
}

// Every reason is there from the start, and a call counts under one.
TEST(Metrics, CountsRefusalsByWhy) {
  ServerStats stats;
  stats.callers.no_identity = 21;
  stats.callers.token = 22;
  Metrics metrics({}, [&] { return stats; });
  for (int why = 2; why < kCallRefusals; ++why) {
    CallRecord call = Ended(Method::kForward, absl::StatusCode::kUnavailable);
    call.status = Refused(static_cast<CallRefusal>(why), call.status);
    for (int i = 0; i < why; ++i) metrics.CallEnded(call, /*is_slow=*/false);
  }
  metrics.CallEnded(Ended(Method::kForward, absl::StatusCode::kInternal),
                    /*is_slow=*/false);
  metrics.CallEnded(Ended(Method::kForward, absl::StatusCode::kOk),
                    /*is_slow=*/false);
  const std::string text = Text(metrics);
  for (int why = 0; why < kCallRefusals; ++why) {
    EXPECT_THAT(text,
                HasSubstr(std::string("\nattnd_refused_calls_total{reason=\"") +
                          NameOf(static_cast<CallRefusal>(why)) + "\"} " +
                          std::to_string(why < 2 ? 21 + why : why) + "\n"));
  }
}

TEST(Metrics, ReadsTheServerAtEachScrape) {
  ServerStats stats;
  Metrics metrics({.devices = {{"cpu:0", "fast"}, {"cuda:0", "faster"}},
                   .memory_limit_bytes = 1,
                   .max_connections = 2,
                   .max_queue_requests = 3,
                   .max_queue_flops = 4},
                  [&stats] { return stats; });
  EXPECT_THAT(Text(metrics), HasSubstr("attnd_queue_requests 0"));
  stats.scheduler.queued_requests = 4;
  stats.scheduler.queued_longest = absl::Milliseconds(1500);
  stats.scheduler.account_bytes = 12345;
  stats.scheduler.device_in_service = {true, false};
  stats.scheduler.lanes = {{2, 1, absl::Seconds(3), absl::Seconds(2)},
                           {4, 0, absl::Seconds(5), absl::ZeroDuration()}};
  stats.scheduler.draining = true;
  stats.usage = {std::nullopt, DeviceUsage{0.25, 10, 20}};
  stats.uploads.limit_bytes = 77;
  stats.log[2] = {8, 9};
  const std::string text = Text(metrics);
  for (const char* line :
       {"attnd_queue_requests 4",
        "attnd_max_queue_requests 3",
        "attnd_max_queue_floating_point_operations 4",
        "attnd_queue_oldest_seconds 1.5",
        "attnd_account_bytes 12345",
        "attnd_memory_limit_bytes 1",
        "attnd_max_connections 2",
        "attnd_draining 1",
        "attnd_upload_limit_bytes 77",
        "attnd_device_info{device=\"cuda:0\",model=\"faster\"} 1",
        "attnd_device_in_service{device=\"cpu:0\"} 1",
        "attnd_device_in_service{device=\"cuda:0\"} 0",
        "attnd_lanes{device=\"cpu:0\"} 2",
        "attnd_lane_busy_seconds_total{device=\"cuda:0\"} 5",
        "attnd_lane_longest_seconds{device=\"cpu:0\"} 2",
        "attnd_lane_longest_seconds{device=\"cuda:0\"} 0",
        "attnd_gpu_utilization_ratio{device=\"cuda:0\"} 0.25",
        "attnd_gpu_memory_used_bytes{device=\"cuda:0\"} 10",
        "attnd_gpu_memory_total_bytes{device=\"cuda:0\"} 20",
        "attnd_log_lines_left_out_total{source=\"calls\",reason=\"budget\"} 8",
        "attnd_log_lines_left_out_total{source=\"calls\",reason=\"reader\"} "
        "9"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
  EXPECT_THAT(text, Not(HasSubstr("attnd_gpu_memory_used_bytes{device=\"cpu")));
  EXPECT_THAT(text, HasSubstr("attnd_build_info{version="));
}

// An alert on files must not fire where there are none.
TEST(Metrics, WhatThereIsNotHasNoSeries) {
  ServerStats stats;
  Metrics metrics({}, [&stats] { return stats; });
  for (const char* name : {"attnd_tls_files_good", "attnd_token_file_good",
                           "attnd_tls_certificate_expiry_seconds"}) {
    EXPECT_THAT(Text(metrics), Not(HasSubstr(std::string("\n") + name + " ")));
  }
  stats.gate.tls_files_good = false;
  stats.token_file_good = true;
  stats.gate.certificate_end = absl::FromUnixSeconds(1234567890);
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("\nattnd_tls_files_good 0\n"));
  EXPECT_THAT(text, HasSubstr("\nattnd_token_file_good 1\n"));
  EXPECT_THAT(text,
              HasSubstr("\nattnd_tls_certificate_expiry_seconds 1234567890\n"));
}

TEST(Metrics, SaysWhatTheProcessTakes) {
  const std::string text = Text(Metrics({}, [] { return ServerStats(); }));
  const auto value = [&text](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos
               ? -1
               : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(value("process_virtual_memory_bytes"),
            value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_threads"), 1);
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GE(value("process_max_fds"), value("process_open_fds"));
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(value("process_start_time_seconds"), now, 3600);
}

TEST(Metrics, HasAFixedNumberOfSeries) {
  Metrics metrics({}, [] { return ServerStats(); });
  const auto lines = [&metrics] {
    const std::string text = Text(metrics);
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto before = lines();
  for (int code = 0; code < 40; ++code) {
    metrics.CallEnded(
        Ended(Method::kForward, static_cast<absl::StatusCode>(code), code),
        /*is_slow=*/false);
  }
  EXPECT_EQ(lines(), before);
}

TEST(Metrics, CountsConnections) {
  ServerStats stats;
  stats.connections = {3, 9, {1, 2, 4}};
  const Metrics metrics({}, [&stats] { return stats; });
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

TEST(Metrics, CountsRegions) {
  ServerStats stats;
  const Metrics metrics({}, [&stats] { return stats; });
  RegionStats& regions = stats.regions;
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
