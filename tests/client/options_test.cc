#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "attnd/client.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

TEST(ClientOptionsTest, DefaultsAreValidAndBadValuesAreNamed) {
  EXPECT_TRUE(ClientOptions().Validate().ok());
  const auto refused = [](auto change, const char* field) {
    ClientOptions options;
    change(options);
    const absl::Status status = options.Validate();
    ASSERT_EQ(wire::FieldViolations(status).size(), 1) << field;
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field);
  };
  using O = ClientOptions;
  refused([](O& o) { o.max_message_bytes = 0; }, "max_message_bytes");
  refused([](O& o) { o.max_message_bytes = int64_t{1} << 31; },
          "max_message_bytes");
  refused([](O& o) { o.keepalive_time = absl::ZeroDuration(); },
          "keepalive_time");
  // Oftener than servers allow.
  refused([](O& o) { o.keepalive_time = absl::Milliseconds(999); },
          "keepalive_time");
  refused([](O& o) { o.keepalive_timeout = absl::InfiniteDuration(); },
          "keepalive_timeout");
  refused([](O& o) { o.max_attempts = 0; }, "max_attempts");
  refused([](O& o) { o.initial_backoff = -absl::Seconds(1); },
          "initial_backoff");
  refused([](O& o) { o.max_backoff = absl::Hours(25); }, "max_backoff");
  refused([](O& o) { o.retry_budget = -0.1; }, "retry_budget");
  refused([](O& o) { o.retry_budget = std::nan(""); }, "retry_budget");
  refused([](O& o) { o.connections = 0; }, "connections");
  refused([](O& o) { o.executor_threads = 1000; }, "executor_threads");
  refused([](O& o) { o.busy_poll = -absl::Microseconds(1); }, "busy_poll");
}

}  // namespace
}  // namespace attnd::client
