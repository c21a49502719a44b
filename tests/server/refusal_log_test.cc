#include "server/telemetry/refusal_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace attnd::server {
namespace {

using ::testing::ElementsAre;

class RefusalLogTest : public ::testing::Test {
 protected:
  std::vector<std::string> lines_;
  int left_out_ = 0;
  RefusalLog log_{[this](const LogLine& line) {
                    EXPECT_EQ(line.level, LogLevel::kWarning);
                    lines_.push_back(line.message);
                  },
                  [this] { ++left_out_; }};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(RefusalLogTest, SaysWhomAndWhy) {
  log_.Add(Refusal::kMaxConnections, UserOrigin(7), now_);
  log_.Add(Refusal::kMaxConnectionsPerClient, UserOrigin(8), now_);
  log_.Add(Refusal::kNoDescriptor, UserOrigin(9), now_);
  EXPECT_THAT(
      lines_,
      ElementsAre("refused a connection of user 7: as many are open as "
                  "--max_connections allows",
                  "refused a connection of user 8: it has as many as "
                  "--max_connections_per_client allows",
                  "refused a connection of user 9: no descriptor is left; see "
                  "ulimit -n"));
}

TEST_F(RefusalLogTest, AFloodIsCountedAndNotWritten) {
  constexpr int kFlood = 10000;
  for (int i = 0; i < kFlood; ++i) {
    log_.Add(Refusal::kMaxConnections, UserOrigin(i), now_);
  }
  const size_t written = lines_.size();
  EXPECT_GE(written, 1);
  EXPECT_LE(written, 50);
  EXPECT_EQ(left_out_, kFlood - static_cast<int>(written));
  now_ += absl::Seconds(10);
  log_.Add(Refusal::kMaxConnections, UserOrigin(7), now_);
  EXPECT_EQ(lines_.size(), written + 1);
}

TEST_F(RefusalLogTest, WritesToNobody) {
  RefusalLog(nullptr, nullptr)
      .Add(Refusal::kMaxConnections, UserOrigin(7), now_);
}

}  // namespace
}  // namespace attnd::server
