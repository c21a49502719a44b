// What attnload reports, against what attnd counts and against itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/client/attnload_program.h"

namespace attnd {
namespace {

using ::nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

int64_t Sum(const json& by_code) {
  int64_t sum = 0;
  for (const auto& [code, n] : by_code.items()) sum += n.get<int64_t>();
  return sum;
}

void ExpectLatency(const json& latency) {
  EXPECT_GT(latency["p50_s"], 0);
  const char* ascending[] = {"p50_s", "p90_s", "p99_s", "p999_s", "max_s"};
  for (int i = 1; i < 5; ++i) {
    EXPECT_LE(latency[ascending[i - 1]], latency[ascending[i]]) << latency;
  }
  EXPECT_GT(latency["mean_s"], 0);
  EXPECT_LE(latency["mean_s"], latency["max_s"]);
}

// What holds of any level whose requests were all answered.
void ExpectConsistent(const json& level, double bytes) {
  SCOPED_TRACE(level.dump(2));
  const double ok = level["ok"], elapsed = level["elapsed_s"];
  EXPECT_EQ(level["failed"], 0);
  EXPECT_EQ(level["latency"]["count"], ok);
  EXPECT_NEAR(level["requests_per_s"].get<double>() * elapsed, ok, 1e-6 * ok);
  EXPECT_NEAR(level["gigabytes_per_s"].get<double>() * elapsed * 1e9, bytes,
              1e-6 * bytes);
  EXPECT_GT(level["tflops"], 0);
  ExpectLatency(level["latency"]);
  int64_t of_shapes = 0;
  for (const json& shape : level["shapes"]) {
    of_shapes += shape["latency"]["count"].get<int64_t>();
    ExpectLatency(shape["latency"]);
    EXPECT_LE(shape["latency"]["max_s"], level["latency"]["max_s"]);
  }
  EXPECT_EQ(of_shapes, ok);
  // The phases are a part of what the client waits for.
  double phases = 0;
  for (const char* phase : {"queue", "upload", "compute", "download"}) {
    const double mean = level["server_mean_s"][phase];
    EXPECT_GE(mean, 0);
    phases += mean;
  }
  EXPECT_GT(level["server_mean_s"]["compute"], 0);
  EXPECT_LE(phases, level["latency"]["mean_s"].get<double>());
  EXPECT_GE(level["mean_batch_requests"], 1);
  EXPECT_EQ(Sum(level["transport"]), ok);
  EXPECT_EQ(level["answers_wrong"], 0);
  if (level["loop"] == "open") return;
  // Little's law: what is in flight is never more than asked for.
  EXPECT_LE(level["in_flight_peak"], level["concurrency"]);
  EXPECT_LE(level["requests_per_s"].get<double>() *
                level["latency"]["mean_s"].get<double>(),
            level["concurrency"].get<double>() * (1 + 1e-9));
}

// The numbers of the table's row that starts with `name`.
std::vector<double> Row(const std::string& table, const std::string& name) {
  std::vector<double> numbers;
  for (absl::string_view line : absl::StrSplit(table, '\n')) {
    if (line.find(name + " ") != 0) continue;
    for (absl::string_view word : absl::StrSplit(line.substr(name.size()), ' ',
                                                 absl::SkipWhitespace())) {
      EXPECT_TRUE(absl::SimpleAtod(word, &numbers.emplace_back())) << line;
    }
    break;
  }
  return numbers;
}

// The row says what `level` says, to the digits that it has.
void ExpectRow(const std::string& table, const std::string& name,
               const json& level) {
  const json &latency = level["latency"], &phases = level["server_mean_s"];
  const auto ms = [](const json& seconds) {
    return seconds.get<double>() * 1e3;
  };
  const std::vector<std::pair<double, int>> expected = {
      {level["requests_per_s"], 1},
      {ms(latency["p50_s"]), 2},
      {ms(latency["p90_s"]), 2},
      {ms(latency["p99_s"]), 2},
      {ms(latency["p999_s"]), 2},
      {ms(latency["max_s"]), 2},
      {level["tflops"], 3},
      {level["gigabytes_per_s"], 2},
      {ms(phases["queue"]), 2},
      {ms(phases["upload"]), 2},
      {ms(phases["compute"]), 2},
      {ms(phases["download"]), 2},
      {level["mean_batch_requests"], 1},
      {level["failed"], 0}};
  const std::vector<double> row = Row(table, name);
  ASSERT_EQ(row.size(), expected.size()) << name << " in\n" << table;
  for (size_t i = 0; i < row.size(); ++i) {
    const auto [value, digits] = expected[i];
    EXPECT_NEAR(row[i], value, 0.5 * std::pow(10, -digits) * (1 + 1e-6))
        << "column " << i + 1 << " of " << name << " in\n"
        << table;
  }
}

TEST_F(AttnloadTest, EachLevelHasARowAndAnObjectThatAgree) {
  const Measured m =
      Measure({"--shape=s256:h8:d64", "--concurrency=1:4:*2", "--rate=40:80:40",
               "--requests=12", "--warmup=0", "--check=1"});
  const std::string& table = m.ran.output;
  const std::vector<std::string> names = {"1 at once", "2 at once", "4 at once",
                                          "40/s", "80/s"};
  ASSERT_EQ(m.levels.size(), names.size());
  // Q, K, V and O in f32, and an LSE for each row.
  const double bytes = 4 * 256 * 8 * 64 * 4 + 256 * 8 * 4;
  int64_t checked = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const json& level = m.levels[i];
    const bool open = i >= 3;
    EXPECT_EQ(level["loop"], open ? "open" : "closed");
    EXPECT_EQ(level[open ? "rate_per_s" : "concurrency"],
              std::atoi(names[i].c_str()));
    EXPECT_EQ(level["ok"], 12);
    EXPECT_EQ(Sum(level["sent_by_code"]), 12) << "no warm-up";
    ExpectConsistent(level, 12 * bytes);
    ExpectRow(table, names[i], level);
    checked += level["answers_checked"].get<int64_t>();
    EXPECT_LE(level["answers_checked"], 12);
  }
  const std::string head = table.substr(table.find("load  "));
  EXPECT_EQ(absl::StrJoin(absl::StrSplit(head.substr(0, head.find('\n')), ' ',
                                         absl::SkipWhitespace()),
                          " "),
            "load req/s p50 ms p90 ms p99 ms p99.9 ms max ms TFLOP/s GB/s "
            "queue upload compute download batch failed");
  EXPECT_GT(checked, 0);
  EXPECT_THAT(table,
              HasSubstr(absl::StrCat("answers checked: ", checked, " (")));
  EXPECT_THAT(table, HasSubstr("elements), wrong: 0"));
  EXPECT_THAT(table, ContainsRegex("OK +60 "));
  EXPECT_THAT(table,
              HasSubstr("attnd 0.1.0 at " + server_->tcp() + ", cpu:0 "));
}

// Every request of a mix is sent in its direction and counted once, and what
// the program claims to have moved and computed is what the server says.
TEST_F(AttnloadTest, CountsWhatTheServerCounts) {
  const std::string mix = folder_.File("mix");
  std::ofstream(mix) << "# three kinds\n"
                        "forward:s32:h2:d16@2\n"
                        "  backward:s16/24:h2:d16:causal:fa2@1  # twice as "
                        "rare\n\n";
  const Measured m =
      Measure({"--mix=" + mix, "--shape=forward:bf16:s1/64:h4/2:d32@1",
               "--concurrency=4", "--requests=200", "--warmup=0", "--check=1"});
  ASSERT_EQ(m.levels.size(), 1);
  const json& level = m.levels[0];
  const json& shapes = level["shapes"];
  ASSERT_EQ(shapes.size(), 3);
  EXPECT_EQ(shapes[0]["shape"], "forward:s32:h2:d16");
  EXPECT_EQ(shapes[1]["shape"], "backward:s16/24:h2:d16:causal:fa2");
  EXPECT_EQ(shapes[2]["shape"], "forward:bf16:s1/64:h4/2:d32");
  EXPECT_EQ(shapes[0]["weight"], 2);
  const auto count = [&shapes](int i) {
    return shapes[i]["latency"]["count"].get<double>();
  };
  EXPECT_EQ(level["ok"], 200);
  EXPECT_EQ(level["sent_by_code"], json({{"OK", 200}}));
  const double forward = count(0) + count(2), backward = count(1);
  EXPECT_EQ(Requests(forward, "Forward"), forward);
  EXPECT_EQ(Requests(backward, "Backward"), backward);
  // By weight, within five deviations of a binomial distribution.
  EXPECT_NEAR(count(0), 100, 36);
  EXPECT_NEAR(count(1), 50, 31);
  EXPECT_GT(level["answers_checked"], 0);

  const double q = 16 * 2 * 16 * 4, kv = 24 * 2 * 16 * 4, rows = 16 * 2 * 4;
  ExpectConsistent(
      level, count(0) * (4 * 32 * 2 * 16 * 4 + 32 * 2 * 4) +
                 // Q, O and dO, K and V, and LSE; dQ, dK and dV.
                 count(1) * (3 * q + 2 * kv + rows + q + 2 * kv) +
                 // Q and O, K and V, and LSE.
                 count(2) * (2 * 4 * 32 * 2 + 2 * 64 * 2 * 32 * 2 + 4 * 4));
  // A line a shape, with its count.
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(m.ran.output,
                ContainsRegex(absl::StrCat(
                    "4 at once +", shapes[i]["shape"].get<std::string>(), " +",
                    count(i), "  p50 [0-9.]+  p99 [0-9.]+\n")));
  }
}

// The server's own figures, passed on: sums over all requests.
TEST_F(AttnloadTest, SumsUpWhatTheServerMeasures) {
  const Measured m =
      Measure({"--shape=s32:h2:d16", "--shape=backward:s48:h2:d16:causal",
               "--concurrency=4", "--requests=100", "--warmup=0"});
  const json &level = m.levels[0], &phases = level["server_mean_s"];
  const double elapsed = level["elapsed_s"], ok = 100;
  double served = 0;
  for (int i = 0; i < 2; ++i) {
    const double count = level["shapes"][i]["latency"]["count"];
    served += Requests(count, i == 0 ? "Forward" : "Backward");
  }
  ASSERT_EQ(served, ok);
  const auto expect = [this, ok](double sum, const std::string& series,
                                 const std::string& labels) {
    double counted = 0;
    for (const char* method : {"Forward", "Backward"}) {
      counted += Counted(
          absl::StrCat(series, "{method=\"", method, "\"", labels, "}"));
    }
    // Times travel in whole nanoseconds.
    EXPECT_NEAR(sum, counted, 1e-6 * sum + 1e-9 * ok) << series << labels;
  };
  expect(level["tflops"].get<double>() * elapsed * 1e12,
         "attnd_floating_point_operations_total", "");
  for (const char* phase : {"queue", "upload", "compute", "download"}) {
    expect(phases[phase].get<double>() * ok, "attnd_phase_duration_seconds_sum",
           absl::StrCat(",phase=\"", phase, "\""));
  }
  EXPECT_NEAR(level["mean_batch_requests"].get<double>() * ok,
              Counted("attnd_batch_requests_sum"), 1e-6);
}

TEST_F(AttnloadTest, WarmUpIsSentButNotMeasured) {
  // Which requests are due before it ends follows from the seed.
  const Measured m = Measure(
      {kSmall, "--warmup=0.1", "--requests=1", "--rate=200", "--check=0"});
  const json& level = m.levels[0];
  EXPECT_EQ(level["ok"], 1);
  EXPECT_EQ(level["latency"]["count"], 1);
  EXPECT_EQ(level["answers_checked"], 0);
  // The one that counts: its time is all the time there is.
  EXPECT_DOUBLE_EQ(level["elapsed_s"], level["latency"]["max_s"]);
  const double sent = level["sent_by_code"]["OK"];
  EXPECT_GT(sent, 1);
  EXPECT_EQ(Requests(sent, "Forward"), sent);
}

TEST_F(AttnloadTest, AnOpenLoopSendsAtRandomTimesThatFollowFromTheSeed) {
  const auto sent = [this](const char* seed) {
    std::vector<int64_t> counts;
    const Measured m = Measure(
        {kSmall, "--rate=200,400", "--duration=0.2", "--warmup=0", seed});
    for (const json& level : m.levels) {
      EXPECT_EQ(level["loop"], "open");
      EXPECT_EQ(level["failed"], 0);
      counts.push_back(level["ok"]);
    }
    return counts;
  };
  const std::vector<int64_t> counts = sent("--seed=7");
  ASSERT_EQ(counts.size(), 2);
  // Within five deviations of a Poisson distribution.
  EXPECT_NEAR(counts[0], 40, 5 * std::sqrt(40));
  EXPECT_NEAR(counts[1], 80, 5 * std::sqrt(80));
  EXPECT_EQ(sent("--seed=7"), counts);
  EXPECT_NE(sent("--seed=8"), counts);
}

TEST_F(AttnloadTest, AnOpenLoopHoldsNoMoreThanMaxInFlight) {
  const Measured m = Measure({kSmall, "--rate=100000", "--max_in_flight=3",
                              "--requests=200", "--warmup=0", "--check=0"});
  EXPECT_EQ(m.levels[0]["in_flight_peak"], 3);
  EXPECT_EQ(m.levels[0]["ok"], 200);
}

TEST_F(AttnloadTest, ALowRateEndsWithItsDuration) {
  // The first request is due after some 1000 seconds.
  const Measured m = Measure(
      server_->tcp(), {kSmall, "--rate=0.001", "--duration=0.1", "--warmup=0"});
  EXPECT_EQ(m.ran.exit_status, kBadOrNone) << "none came";
  EXPECT_EQ(m.levels[0]["ok"], 0);
}

TEST_F(AttnloadTest, RequestsThatTheServerRefusesAreCountedAndShown) {
  const std::vector<std::string> bad_one = {"--shape=s8:h1:d300",
                                            "--requests=20", "--warmup=0"};
  const Measured none = Measure(server_->tcp(), bad_one);
  EXPECT_EQ(none.ran.exit_status, kBadOrNone) << "none was answered";
  EXPECT_EQ(none.levels[0]["ok"], 0);
  EXPECT_EQ(none.levels[0]["failed"], 20);
  EXPECT_EQ(none.levels[0]["sent_by_code"], json({{"INVALID_ARGUMENT", 20}}));
  EXPECT_EQ(Requests(20, "Forward", "INVALID_ARGUMENT"), 20);
  EXPECT_THAT(none.ran.output, ContainsRegex("INVALID_ARGUMENT +20  .*300"));
  EXPECT_THAT(none.ran.output, ContainsRegex("1 at once .* 20\n"));

  std::vector<std::string> both = bad_one;
  both.push_back(kSmall);
  const Measured some = Measure(both);
  const json& level = some.levels[0];
  EXPECT_GT(level["ok"], 0);
  EXPECT_GT(level["failed"], 0);
  EXPECT_EQ(level["ok"].get<int64_t>() + level["failed"].get<int64_t>(), 20);
  EXPECT_EQ(level["latency"]["count"], level["ok"]);
  EXPECT_NEAR(
      level["requests_per_s"].get<double>() * level["elapsed_s"].get<double>(),
      level["ok"].get<double>(), 1e-6)
      << "answers alone";
  EXPECT_EQ(level["sent_by_code"]["OK"], level["ok"]);
  EXPECT_EQ(level["sent_by_code"]["INVALID_ARGUMENT"], level["failed"]);
  EXPECT_EQ(level["shapes"][0]["latency"]["count"], 0);
  EXPECT_EQ(level["shapes"][1]["latency"]["count"], level["ok"]);
}

// Gradients of one query over many keys are among f16's subnormals, which a
// right answer may round by as much as the value.
TEST_F(AttnloadTest, RightGradientsAmongSubnormalsAreNotCalledWrong) {
  const Measured m = Measure({"--shape=backward:f16:s1/4096:h8:d128",
                              "--check=1", "--requests=15", "--warmup=0"});
  EXPECT_GT(m.levels[0]["answers_checked"], 0);
  EXPECT_EQ(m.levels[0]["answers_wrong"], 0) << m.ran.output;
}

}  // namespace
}  // namespace attnd
