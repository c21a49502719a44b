#ifndef ATTND_TESTS_INTEGRATION_HAPROXY_H_
#define ATTND_TESTS_INTEGRATION_HAPROXY_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "tests/temp_folder.h"

namespace attnd::testing {

// HAProxy in front of an attnd on this host, with deploy/haproxy.cfg.
class Haproxy {
 public:
  // The program's path; empty: it is not installed.
  static std::string Find();

  // Takes what comes to a free port of loopback to `socket`, a unix socket's
  // path. `bundle`: a file with its certificate and the key to it; empty: it
  // takes what is in clear, and the rest of its configuration is the same.
  // NOT_FOUND: it is not installed; else what the system said. Connections that
  // come before it runs wait.
  static absl::StatusOr<std::unique_ptr<Haproxy>> Start(
      const std::string& socket, const std::string& bundle);
  ~Haproxy();
  Haproxy(const Haproxy&) = delete;
  Haproxy& operator=(const Haproxy&) = delete;

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  pid_t pid() const { return pid_; }

 private:
  Haproxy() = default;

  const TempFolder folder_;
  int port_ = 0;
  Descriptor listener_;  // whose port that is
  pid_t pid_ = -1;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_HAPROXY_H_
