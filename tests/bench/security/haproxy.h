#ifndef ATTND_TESTS_BENCH_SECURITY_HAPROXY_H_
#define ATTND_TESTS_BENCH_SECURITY_HAPROXY_H_

#include <sys/types.h>

#include <string>

#include "base/descriptor.h"
#include "tests/temp_folder.h"

namespace attnd::bench {

// HAProxy in front of an attnd on this host, with deploy/haproxy.cfg.
class Haproxy {
 public:
  static bool IsInstalled();

  // Takes what comes to a free port of loopback to `socket`, a unix socket's
  // path. `bundle`: a file with its certificate and the key to it; empty: it
  // takes what is in clear, and the rest of its configuration is the same. Ends
  // the program if it cannot be started.
  Haproxy(const std::string& socket, const std::string& bundle);
  ~Haproxy();
  Haproxy(const Haproxy&) = delete;
  Haproxy& operator=(const Haproxy&) = delete;

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const testing::TempFolder folder_;
  int port_ = 0;
  Descriptor listener_;  // whose port that is
  pid_t pid_ = -1;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_HAPROXY_H_
