#ifndef ATTND_SERVER_TELEMETRY_GATE_LOG_H_
#define ATTND_SERVER_TELEMETRY_GATE_LOG_H_

// What is counted and logged of connections on their way to gRPC.

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "base/mutex.h"
#include "server/net/gate_stats.h"
#include "server/net/guarded_connection.h"
#include "server/net/origin.h"
#include "server/telemetry/line_limit.h"

namespace attnd::server {

// A line each of what peers cause, as long as LineLimit allows. Thread-safe.
class GateLog {
 public:
  GateLog(WriteLine write, LeaveOutLine leave_out)
      : write_(std::move(write)), leave_out_(std::move(leave_out)) {}

  void WasCut(const Cut& cut, const Origin& origin);
  void HandshakeDone();
  void HandshakeFailed(absl::string_view why, const Origin& origin);
  // `renewed` is what CredentialsWatch::Look says; so many connections were
  // ended for it.
  void Renewed(const absl::Status& renewed, int ended);
  void PeersExpired(int ended);
  // What TLS goes by now; see GateStats.
  void TlsIs(bool files_good, absl::Time certificate_end);

  GateStats stats() const;
  // Nothing is written from now on; connections may outlive who reads it.
  void Close();

 private:
  void Write(const LogLine& line, LineLimit::Place place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  WriteLine write_ ABSL_GUARDED_BY(mutex_);
  LeaveOutLine leave_out_ ABSL_GUARDED_BY(mutex_);
  GateStats stats_ ABSL_GUARDED_BY(mutex_);
  LineLimit limit_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_TELEMETRY_GATE_LOG_H_
