#include "server/admin/statusz_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/admin/html.h"

namespace attnd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] = "<script>alert('1')</script>&\"";

TEST(StatuszPageTest, ShowsWhatThereIs) {
  ServerStatus status;
  status.health = "serving";
  status.uptime = absl::Seconds(100);
  status.info.set_version("1.2.3");
  status.facts.devices = {{"cuda:0", "NVIDIA H200"}};
  status.facts.max_queue_requests = 1024;
  status.stats.scheduler.device_in_service = {false};
  status.stats.scheduler.lanes = {{2, 1, absl::Seconds(50), absl::Seconds(3)}};
  status.stats.scheduler.queued_requests = 7;
  status.stats.usage = {DeviceUsage{0.5, int64_t{1} << 30, int64_t{1} << 37}};
  status.refused[static_cast<int>(CallRefusal::kQueueFull)] = 12;
  CallLog::Ended ended;
  ended.shape = "forward:bf16";
  ended.call.status = absl::InternalError("fell over");
  ended.call.code = absl::StatusCode::kInternal;
  ended.call.ids = CallIds("an-id", std::nullopt);
  status.calls.failed.push_back(ended);
  ended.call.total = absl::Seconds(75);
  ended.call.run.emplace();
  ended.call.run->device = "cuda:0 NVIDIA H200";
  status.calls.slowest.push_back(ended);
  const std::string page =
      StatuszHtml(status, absl::FromUnixSeconds(1000000000));
  for (const char* text :
       {"serving", "1.2.3", "2001-09-09 01:46:40Z", "NVIDIA H200", ">NO<",
        "1 of 2", "50s, 25.0 %", "50 %", "1024.0 MiB of 128.0 GiB", "7 of 1024",
        "queue_full", ">12<", "fell over", "an-id", "forward:bf16", "1m15s"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

// Whatever clients and drivers say stays text.
TEST(StatuszPageTest, NothingFromOutsideIsMarkup) {
  ServerStatus status;
  status.health = kHostile;
  status.facts.devices = {{kHostile, kHostile}};
  CallLog::Ended ended;
  ended.shape = kHostile;
  ended.call.client = kHostile;
  ended.call.status = absl::InternalError(kHostile);
  ended.call.code = absl::StatusCode::kInternal;
  ended.call.run.emplace();
  ended.call.run->device = kHostile;
  status.calls.failed.push_back(ended);
  status.calls.slowest.push_back(ended);
  const std::string page = StatuszHtml(status, absl::Now());
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("alert('")));
  EXPECT_EQ(EscapeHtml(kHostile),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;");
}

}  // namespace
}  // namespace attnd::server
