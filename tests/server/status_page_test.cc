#include "server/admin/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace attnd::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StatusPageTest, IsIndentedAndInOrder) {
  ServerStatus status;
  status.health = "serving";
  status.uptime = absl::Milliseconds(1500);
  status.info.set_version("1.2.3");
  status.info.set_server_instance_id("abc");
  status.stats.connections.refused = {1, 20, 300};
  const std::string page = StatusJson(status);
  EXPECT_THAT(page, StartsWith("{\n"
                               "  \"version\": \"1.2.3\",\n"
                               "  \"instance\": \"abc\",\n"
                               "  \"health\": \"serving\",\n"
                               "  \"uptime_seconds\": 1.5,\n"
                               "  \"features\": [],\n"
                               "  \"devices\": [],\n"
                               "  \"limits\": {\n"));
  EXPECT_THAT(page, HasSubstr("\"refused\": 321\n"));
  EXPECT_THAT(page, EndsWith("\n}\n"));
}

TEST(StatusPageTest, TextIsEscaped) {
  ServerStatus status;
  status.info.add_devices()->set_name("a\"b \\ \n\x01 \xc3\xa9");
  EXPECT_THAT(StatusJson(status),
              HasSubstr("\"name\": \"a\\\"b \\\\ \\n\\u0001 \xc3\xa9\""));
}

// A driver may say anything.
TEST(StatusPageTest, WhatIsNoTextIsReplaced) {
  ServerStatus status;
  status.health = "\xff?";
  EXPECT_THAT(StatusJson(status), HasSubstr("\"health\": \"\xef\xbf\xbd?\""));
}

TEST(StatusPageTest, NumbersAreJsons) {
  ServerStatus status;
  status.info.mutable_limits()->set_max_queue_flops(1e15);
  status.info.mutable_limits()->set_max_request_flops(HUGE_VAL);
  status.stats.scheduler.queued_flops = 0.5;
  const std::string page = StatusJson(status);
  EXPECT_THAT(page, HasSubstr("\"max_queue_flops\": 1e+15,"));
  EXPECT_THAT(page, HasSubstr("\"max_request_flops\": null,"));
  EXPECT_THAT(page, HasSubstr("\"flops\": 0.5,"));
}

}  // namespace
}  // namespace attnd::server
