#ifndef ATTND_SERVER_CONFIG_OPTIONS_H_
#define ATTND_SERVER_CONFIG_OPTIONS_H_

// What a server is told at its start. Flags live in flags.cc only, which
// every program around this library shares.

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "server/config/log_stats.h"
#include "server/identity/options.h"
#include "server/region/options.h"
#include "server/scheduling/options.h"
#include "server/tls/credentials.h"

namespace attnd::server {

// Who may ask what the server serves, by gRPC's reflection.
enum class Reflection : uint8_t {
  kOff,
  kAdmin,  // whoever reaches admin_address
  kAll,    // all clients
};

// Connections to admin_address that speak gRPC at once. More are closed as they
// come; none of them counts among max_connections.
inline constexpr int kMaxAdminConnections = 64;

// What is told of calls (telemetry/call_log.h).
struct CallLogOptions {
  // Gets a line for each call that failed or was slow, as long as they are few,
  // and at kDebug for every call. Empty: nobody does.
  WriteLine write;
  LeaveOutLine leave_out;
  LogLevel level = LogLevel::kInfo;  // the least that is written
  // Calls that take longer are slow. 0: none is.
  absl::Duration slow_time = absl::Seconds(10);
};

struct ServerOptions {
  // Where it listens. Loopback unless it speaks TLS or allow_insecure_bind.
  std::string host = "127.0.0.1";
  int port = 0;                 // 0: any free one; -1: no TCP
  std::string unix_socket;      // a path; empty: none
  int unix_socket_mode = 0600;  // who may connect to it
  int metrics_port = -1;        // HTTP on `host`; 0: any free one; -1: none
  // HOST:PORT for operators: pages over HTTP and, over gRPC, health, channelz
  // and reflection. Loopback as `host` is; port 0: any free one; empty: none.
  std::string admin_address;
  Reflection reflection = Reflection::kAdmin;
  bool allow_insecure_bind = false;
  // What TCP is encrypted with, and who may connect; not enabled(): it is in
  // clear. The unix socket is always.
  tls::CredentialFiles tls;

  // Resident memory stays below this + 64 MiB; see DivideMemory.
  int64_t memory_limit_bytes = int64_t{4} << 30;
  // The largest request and response; 0: as large as the memory allows.
  int64_t max_message_bytes = 0;
  // `memory_bytes` is overwritten with DivideMemory's.
  SchedulerOptions scheduler;
  // Memory that clients on this host share, beside memory_limit_bytes.
  RegionOptions regions;
  // Who may call, and how much each client may ask for.
  IdentityOptions identity;

  // Admitted work may take this long to finish once the server drains.
  absl::Duration drain_time = absl::Seconds(30);
  // A silent peer is given up after keepalive_time + keepalive_timeout.
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  // A connection without calls for so long is closed; clients connect again
  // when they call. 0: never.
  absl::Duration idle_timeout = absl::Seconds(300);
  // A connection this old takes no new calls, and is closed when those that it
  // has are over: so that clients behind a load balancer spread anew. 0: never.
  absl::Duration connection_age = absl::ZeroDuration();
  // A connection that has not begun to speak HTTP/2 by then is closed, one to
  // the region socket that has asked for nothing, and a stream of an Exchange
  // ends that has not sent its first message.
  absl::Duration header_time = absl::Seconds(10);
  int max_streams_per_connection = 1024;
  // A message that is on its way, in either direction, may stall for so long:
  // it has this time and a second more for each 8 MiB. A peer that stops
  // reading or sending holds memory no longer.
  absl::Duration stall_time = absl::Seconds(60);
  // What an Exchange may have: streams at once, the first included.
  int max_transfer_streams = 8;
  // Threads that read and write the network, and copy chunks of Exchanges to
  // where they are computed. 0: one a processor, 16 at most.
  int io_threads = 0;
  int IoThreads() const;  // how many that are
  // For clients a long way off: measures the link and opens windows by it, at
  // the price of memory for messages that nobody reads yet.
  bool long_links = false;
  // More are closed as they come: of all clients, and of one, which is an IPv4
  // address, an IPv6 network of 64 bits, or a user on the unix socket.
  int max_connections = 1024;
  int max_connections_per_client = 256;
  int64_t max_metadata_bytes = 16 << 10;

  // The bytes that the process' allocator has given out, for a look now and
  // then. Empty: nobody looks.
  std::function<int64_t()> heap_in_use;
  // Told what an operator should know while it serves, such as why a device
  // left.
  WriteLine log;
  LeaveOutLine leave_out;  // a line for it
  CallLogOptions calls;
  // Where spans go of calls that are in a recorded trace: "http://host:4317", a
  // collector that speaks OTLP over gRPC. Empty: nowhere.
  std::string otlp_endpoint;
  // What the log's own reader has missed. Empty: nobody counts.
  std::function<LogStats()> log_stats;

  // INVALID_ARGUMENT naming the option as its flag is spelled
  // ("--memory_limit"), with the range.
  absl::Status Validate() const;
};

// How --memory_limit is divided. A request's bytes are at first gRPC's
// (received, not yet copied), then the account's (input copy, scratch,
// output). Both are bounded apart from each other, so that no mix of arrivals
// and running work exceeds the sum, and a request must fit both.
struct MemoryShares {
  int64_t transport_bytes = 0;  // messages that are received: UploadRoom
  int64_t small_bytes = 0;      // small ones, beside them
  int64_t max_waiting = 0;      // messages that wait, of each kind
  int64_t account_bytes = 0;    // the byte account
  // The largest message: two fit into transport_bytes, so that one of unknown
  // length can arrive while others do; never more than plain protobuf can read.
  int64_t max_message_bytes = 0;
};
MemoryShares DivideMemory(int64_t memory_limit_bytes);

}  // namespace attnd::server

#endif  // ATTND_SERVER_CONFIG_OPTIONS_H_
