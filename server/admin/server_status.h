#ifndef ATTND_SERVER_ADMIN_SERVER_STATUS_H_
#define ATTND_SERVER_ADMIN_SERVER_STATUS_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "attn/v1/attention.pb.h"
#include "server/scheduling/call_refusal.h"
#include "server/telemetry/call_log.h"
#include "server/telemetry/server_stats.h"

namespace attnd::server {

// All that the pages for operators show, seen at one time.
struct ServerStatus {
  std::string health;  // Health::Describe
  absl::Duration uptime;
  absl::Time now;  // MonotonicNow()
  // As GetServerInfo has it.
  attn::v1::GetServerInfoResponse info;
  std::string build;  // what it was built with, for people
  ServerFacts facts;
  ServerStats stats;
  std::array<int64_t, kCallRefusals> refused{};  // by CallRefusal
  CallLog::Recent calls;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_ADMIN_SERVER_STATUS_H_
