#include "server/telemetry/gate_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/telemetry/log.h"

namespace attnd::server {

void GateLog::WasCut(const Cut& cut, const Origin& origin) {
  MutexLock lock(mutex_);
  ++stats_.cut[cut.why.code];
  Write(absl::StrCat("ended a connection of ", ToString(origin), ": ",
                     cut.why.what, ", after ", cut.frames, " frames and ",
                     cut.bytes, " bytes"),
        {__FILE__, __LINE__});
}

void GateLog::HandshakeDone() {
  MutexLock lock(mutex_);
  ++stats_.tls_handshakes;
}

void GateLog::HandshakeFailed(absl::string_view why, const Origin& origin) {
  MutexLock lock(mutex_);
  ++stats_.tls_handshakes_failed;
  Write(absl::StrCat("no TLS with ", ToString(origin), ": ", why),
        {__FILE__, __LINE__});
}

void GateLog::Renewed(const absl::Status& renewed, int ended) {
  MutexLock lock(mutex_);
  if (!renewed.ok()) {
    Write(absl::StrCat("not renewed, what was good stays: ", renewed.message()),
          {__FILE__, __LINE__});
    return;
  }
  ++stats_.tls_renewals;
  stats_.tls_peers_ended += ended;
  Write(absl::StrCat("renewed what TLS needs; ended ", ended,
                     " connections of clients that are not known any more"),
        {__FILE__, __LINE__});
}

void GateLog::PeersExpired(int ended) {
  if (ended == 0) return;
  MutexLock lock(mutex_);
  stats_.tls_peers_ended += ended;
  Write(absl::StrCat("ended ", ended, " connections of clients whose ",
                     "certificates have expired"),
        {__FILE__, __LINE__});
}

GateStats GateLog::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

void GateLog::Close() {
  MutexLock lock(mutex_);
  write_ = nullptr;
}

void GateLog::Write(absl::string_view line, LineLimit::Place place) {
  if (!write_) return;
  std::string text(line);
  if (left_out_ > 0) {
    absl::StrAppend(&text, " (", left_out_, " lines like it are left out)");
  }
  if (limit_.Allows(place, kStampBytes + text.size(), MonotonicNow())) {
    left_out_ = 0;
    write_(text);
  } else {
    ++left_out_;
  }
}

}  // namespace attnd::server
