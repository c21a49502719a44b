#include "server/telemetry/refusal_log.h"

#include "absl/strings/str_cat.h"
#include "server/telemetry/log_form.h"

namespace attnd::server {
namespace {

absl::string_view Reason(Refusal why) {
  switch (why) {
    case Refusal::kMaxConnections:
      return "as many are open as --max_connections allows";
    case Refusal::kMaxConnectionsPerClient:
      return "it has as many as --max_connections_per_client allows";
    case Refusal::kNoDescriptor:
      break;
  }
  return "no descriptor is left; see ulimit -n";
}

}  // namespace

void RefusalLog::Add(Refusal why, const Origin& origin, absl::Time now) {
  if (!write_) return;
  const LogLine line{LogLevel::kWarning,
                     absl::StrCat("refused a connection of ", ToString(origin),
                                  ": ", Reason(why)),
                     {{"client", ToString(origin)}}};
  if (limit_.Allows({__FILE__, __LINE__}, LineBytes(line), now)) {
    write_(line);
  } else if (leave_out_) {
    leave_out_();
  }
}

}  // namespace attnd::server
