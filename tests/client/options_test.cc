#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

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

TEST(ClientOptionsTest, OptionsOfTlsThatDoNotFitTogetherAreNamed) {
  const auto refused = [](auto change, const char* field) {
    ClientOptions options;
    options.tls.enabled = true;
    change(options.tls);
    const absl::Status status = options.Validate();
    ASSERT_EQ(wire::FieldViolations(status).size(), 1) << field;
    EXPECT_EQ(wire::FieldViolations(status)[0].field, field);
  };
  using T = TlsOptions;
  refused([](T& t) { t = {.ca_file = "ca"}; }, "tls.enabled");
  refused([](T& t) { t = {.server_name = "a"}; }, "tls.enabled");
  refused([](T& t) { t = {.system_roots = false}; }, "tls.enabled");
  refused([](T& t) { t.ca_file = t.ca_pem = "ca"; }, "tls.ca_pem");
  refused([](T& t) { t.system_roots = false; }, "tls.ca_file");
  refused([](T& t) { t.certificate_file = "c"; }, "tls.key_file");
  refused([](T& t) { t.key_pem = "k"; }, "tls.certificate_file");
  refused(
      [](T& t) { t.certificate_file = t.certificate_pem = t.key_file = "c"; },
      "tls.certificate_pem");
  refused([](T& t) { t.certificate_file = t.key_file = t.key_pem = "k"; },
          "tls.key_pem");
  refused([](T& t) { t.server_name = "a b"; }, "tls.server_name");
  refused([](T& t) { t.server_name = "https://a"; }, "tls.server_name");
  refused([](T& t) { t.server_name = std::string(254, 'a'); },
          "tls.server_name");
  ClientOptions good;
  good.tls = {.enabled = true,
              .ca_file = "ca",
              .system_roots = false,
              .certificate_file = "c",
              .key_pem = "k",
              .server_name = "10.0.0.1"};
  EXPECT_TRUE(good.Validate().ok()) << good.Validate();
}

TEST(ClientOptionsTest, ATokenIsOneAndIsNotShown) {
  ClientOptions options;
  options.token = "a secret";
  absl::Status status = options.Validate();
  ASSERT_EQ(wire::FieldViolations(status).size(), 1) << status;
  EXPECT_EQ(wire::FieldViolations(status)[0].field, "token");
  EXPECT_EQ(status.message().find("secret"), absl::string_view::npos);
  options.token = "secret";
  EXPECT_TRUE(options.Validate().ok());
  options.token_file = "file";
  status = options.Validate();
  ASSERT_EQ(wire::FieldViolations(status).size(), 1) << status;
  EXPECT_EQ(wire::FieldViolations(status)[0].field, "token_file");
}

}  // namespace
}  // namespace attnd::client
