#include "server/telemetry/gate_log.h"

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/telemetry/log_form.h"

namespace attnd::server {

void GateLog::WasCut(const Cut& cut, const Origin& origin) {
  MutexLock lock(mutex_);
  ++stats_.cut[cut.why.code];
  Write({LogLevel::kWarning,
         absl::StrCat("ended a connection of ", ToString(origin), ": ",
                      cut.why.what),
         {{"client", ToString(origin)},
          {"frames", cut.frames},
          {"bytes", cut.bytes}}},
        {__FILE__, __LINE__});
}

void GateLog::HandshakeDone() {
  MutexLock lock(mutex_);
  ++stats_.tls_handshakes;
}

void GateLog::HandshakeFailed(absl::string_view why, const Origin& origin) {
  MutexLock lock(mutex_);
  ++stats_.tls_handshakes_failed;
  Write({LogLevel::kWarning,
         absl::StrCat("no TLS with ", ToString(origin), ": ", why),
         {{"client", ToString(origin)}}},
        {__FILE__, __LINE__});
}

void GateLog::Renewed(const absl::Status& renewed, int ended) {
  MutexLock lock(mutex_);
  if (!renewed.ok()) {
    Write({LogLevel::kError, absl::StrCat("not renewed, what was good stays: ",
                                          renewed.message())},
          {__FILE__, __LINE__});
    return;
  }
  ++stats_.tls_renewals;
  stats_.tls_peers_ended += ended;
  Write({LogLevel::kInfo,
         absl::StrCat("renewed what TLS needs; ended ", ended,
                      " connections of clients that are not known any more")},
        {__FILE__, __LINE__});
}

void GateLog::PeersExpired(int ended) {
  if (ended == 0) return;
  MutexLock lock(mutex_);
  stats_.tls_peers_ended += ended;
  Write({LogLevel::kInfo,
         absl::StrCat("ended ", ended, " connections of clients whose ",
                      "certificates have expired")},
        {__FILE__, __LINE__});
}

void GateLog::TlsIs(bool files_good, absl::Time certificate_end) {
  MutexLock lock(mutex_);
  stats_.tls_files_good = files_good;
  stats_.certificate_end = certificate_end;
}

GateStats GateLog::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

void GateLog::Close() {
  MutexLock lock(mutex_);
  write_ = nullptr;
  leave_out_ = nullptr;
}

void GateLog::Write(const LogLine& line, LineLimit::Place place) {
  if (!write_) return;
  if (limit_.Allows(place, LineBytes(line), MonotonicNow())) {
    write_(line);
  } else if (leave_out_) {
    leave_out_();
  }
}

}  // namespace attnd::server
