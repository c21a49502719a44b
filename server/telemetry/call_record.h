#ifndef ATTND_SERVER_TELEMETRY_CALL_RECORD_H_
#define ATTND_SERVER_TELEMETRY_CALL_RECORD_H_

// What is known of a call once it has ended. No gRPC in here.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/request.h"
#include "server/telemetry/call_ids.h"
#include "server/work/run_record.h"

namespace attnd::server {

// An Exchange counts once for each of its streams; what it computes counts
// under the operation.
enum class Method : uint8_t { kForward, kBackward, kGetServerInfo, kExchange };
inline constexpr int kMethods = 4;
const char* NameOf(Method method);

struct CallRecord {
  Method method = Method::kForward;
  absl::Status status;  // what it ended with
  // What its client got: its own code where it gave up before.
  absl::StatusCode code = absl::StatusCode::kOk;
  absl::Duration total;  // from its headers to its end
  int64_t received_bytes = 0, sent_bytes = 0;
  CallIds ids;
  std::string client;                      // empty: it was not admitted
  std::shared_ptr<const Request> request;  // null: none could be read
  std::optional<RunRecord> run;            // empty: it did not run
};

// The request as attnload's --shape has it ("forward:bf16:b1:s512/2048:h16/4:
// d128:causal"), so that it can be tried again; with "packed", "bias" or
// "lens", which attnload cannot do, where it has those.
std::string ShapeOf(const Request& request);

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_CALL_RECORD_H_
