#include "client/attnload/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace attnd::attnload {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two answers of 10 and 20 ms within 100 ms, and one error.
LevelResults SomeLevel() {
  Recorder recorder(1);
  const Clock::time_point start{};
  client::Report report;
  report.flops = 1e9;
  report.queue = absl::Milliseconds(2);
  report.compute = absl::Milliseconds(5);
  report.batch_requests = 4;
  using std::chrono::milliseconds;
  recorder.Record({0, true, start, start + milliseconds(10), 1000}, report);
  recorder.Record(
      {0, true, start + milliseconds(80), start + milliseconds(100), 1000},
      report);
  recorder.Record({0, true, start, start + milliseconds(1), 1000},
                  absl::ResourceExhaustedError("the queue is full"));
  return {true, 20, recorder.results()};
}

TEST(Report, TableHasLatenciesRatesPhasesAndErrors) {
  const std::string table = Table({*ParseShape("s2:h1:d4")}, {SomeLevel()});
  EXPECT_THAT(table, HasSubstr("20/s"));
  EXPECT_THAT(table, HasSubstr("p99.9"));
  EXPECT_THAT(table, HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(table, HasSubstr("the queue is full"));
}

TEST(Report, JsonHasTheNumbers) {
  const auto json = nlohmann::json::parse(
      Json("host:1", {*ParseShape("s2:h1:d4")}, {SomeLevel()}));
  const auto& level = json["levels"][0];
  EXPECT_EQ(level["loop"], "open");
  EXPECT_EQ(level["rate_per_s"], 20);
  EXPECT_EQ(level["ok"], 2);
  EXPECT_EQ(level["failed"], 1);
  EXPECT_DOUBLE_EQ(level["elapsed_s"], 0.1);
  EXPECT_DOUBLE_EQ(level["requests_per_s"], 20);
  EXPECT_DOUBLE_EQ(level["tflops"], 0.02);
  EXPECT_DOUBLE_EQ(level["gigabytes_per_s"], 2e-5);
  EXPECT_DOUBLE_EQ(level["latency"]["max_s"], 0.02);
  EXPECT_DOUBLE_EQ(level["server_mean_s"]["compute"], 0.005);
  EXPECT_EQ(level["mean_batch_requests"], 4);
  EXPECT_EQ(level["sent_by_code"]["RESOURCE_EXHAUSTED"], 1);
  EXPECT_FALSE(json.contains("regions"));
}

TEST(Report, SaysWhatWentByRegionAndWhatDidNot) {
  Recorder recorder(1);
  client::Report report;
  report.transport = client::TransportKind::kRegion;
  recorder.Record({0, true, {}, {}, 1}, report);
  recorder.Record({0, true, {}, {}, 1}, report);
  report.transport = client::TransportKind::kUnary;
  report.fallback = "q: the server lacks regions\x1b";
  recorder.Record({0, true, {}, {}, 1}, report);
  report.fallback = "another";
  report.transport = client::TransportKind::kStream;
  recorder.Record({0, true, {}, {}, 1}, report);
  const std::vector<LevelResults> levels = {{false, 1, recorder.results()}};
  const std::vector<Shape> shapes = {*ParseShape("s2:h1:d4")};
  const std::string table = Table(shapes, levels, {2, 8192, true});
  EXPECT_THAT(table, HasSubstr("answered: 1 unary, 1 in streams (1.0 each), 2 "
                               "by region\n"));
  EXPECT_THAT(table, HasSubstr("regions: 2 of GPU memory, 8192 bytes\n"));
  EXPECT_THAT(table, HasSubstr("sent although in a region: 2, e.g. q: the "
                               "server lacks regions"));
  EXPECT_EQ(table.find('\x1b'), std::string::npos);

  const auto json =
      nlohmann::json::parse(Json("host:1", shapes, levels, {1, 4096, false}));
  EXPECT_EQ(json["regions"]["memory"], "host");
  EXPECT_EQ(json["regions"]["leases"], 1);
  EXPECT_EQ(json["regions"]["bytes"], 4096);
  const auto& level = json["levels"][0];
  EXPECT_EQ(level["transport"]["unary"], 1);
  EXPECT_EQ(level["transport"]["stream"], 1);
  EXPECT_EQ(level["transport"]["region"], 2);
  EXPECT_EQ(level["fallbacks"], 2);
  EXPECT_EQ(level["fallback"], "q: the server lacks regions\x1b");
}

TEST(Report, SaysWhatTeamsRanAndAsWhat) {
  Recorder recorder(2);
  client::Report report;
  report.compute = absl::Milliseconds(3);
  recorder.Record({0, true, {}, {}, 1}, report);
  report.plan.emplace();
  report.plan->predicted = absl::Milliseconds(2);
  for (const client::Plan plan :
       {client::Plan::kHeads, client::Plan::kHeads, client::Plan::kAuto,
        client::Plan::kGather, client::Plan::kRing, client::Plan::kStriped,
        client::Plan::kZigzag, client::Plan::kKv}) {
    report.plan->plan = plan;
    report.compute += absl::Milliseconds(1);
    recorder.Record({1, true, {}, {}, 1}, report);
  }
  const std::vector<LevelResults> levels = {{false, 1, recorder.results()}};
  const std::vector<Shape> shapes = {*ParseShape("s2"), *ParseShape("s4")};
  const std::string table = Table(shapes, levels);
  EXPECT_THAT(table,
              HasSubstr("p99 0.00  unknown 1, heads 2, gather 1, ring 1, "
                        "striped 1, zigzag 1, kv 1\n"));
  EXPECT_THAT(table, HasSubstr("by a team: unknown 1, heads 2, gather 1, "
                               "ring 1, striped 1, zigzag 1, kv 1; "
                               "compute 7.500 ms, predicted 2.000 ms\n"));

  const auto json = nlohmann::json::parse(Json("host:1", shapes, levels));
  const auto& level = json["levels"][0];
  EXPECT_EQ(level["planned"], 8);
  EXPECT_DOUBLE_EQ(level["planned_mean_s"]["compute"], 0.0075);
  EXPECT_DOUBLE_EQ(level["planned_mean_s"]["predicted"], 0.002);
  EXPECT_TRUE(level["shapes"][0]["plans"].empty());
  EXPECT_EQ(level["shapes"][1]["plans"]["heads"], 2);
  for (const char* plan : {"gather", "ring", "striped", "zigzag", "kv"}) {
    EXPECT_EQ(level["shapes"][1]["plans"][plan], 1) << plan;
  }
}

TEST(Report, WhereThereIsNoTeamNoneIsSpokenOf) {
  const std::vector<Shape> shapes = {*ParseShape("s2:h1:d4")};
  EXPECT_THAT(Table(shapes, {SomeLevel()}), Not(HasSubstr("team")));
  const auto json =
      nlohmann::json::parse(Json("host:1", shapes, {SomeLevel()}));
  EXPECT_EQ(json["levels"][0]["planned"], 0);
  EXPECT_EQ(json["levels"][0]["planned_mean_s"]["predicted"], 0);
}

}  // namespace
}  // namespace attnd::attnload
