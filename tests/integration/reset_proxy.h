#ifndef ATTND_TESTS_INTEGRATION_RESET_PROXY_H_
#define ATTND_TESTS_INTEGRATION_RESET_PROXY_H_

// A way to a server that breaks: passes bytes on between TCP connections, and
// resets the ones that it is told to after so many bytes.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace attnd::testing {

class ResetProxy {
 public:
  // Listens on a free port of 127.0.0.1, and connects to `port` there.
  explicit ResetProxy(int port);
  // Resets what is left.
  ~ResetProxy();
  ResetProxy(const ResetProxy&) = delete;
  ResetProxy& operator=(const ResetProxy&) = delete;

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

  // Resets connection `index`, counted from 0 as they come, at both its ends,
  // once so many bytes have gone to the server, or, `back`, to the client.
  void ResetAfter(int index, int64_t bytes, bool back);
  int connections() const;
  // The bytes that have gone to the server, of all connections.
  int64_t sent() const;
  // How many were reset as they were told to be.
  int resets() const;

 private:
  struct Pair;
  struct Limit {
    int64_t bytes = 0;
    bool back = false;
  };
  void Accept();
  void Pump(const std::shared_ptr<Pair>& pair, bool back);

  const int server_port_;
  int listener_ = -1;
  int port_ = 0;
  mutable Mutex mutex_;
  std::map<int, Limit> limits_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Pair>> pairs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  int resets_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread accepting_;
};

}  // namespace attnd::testing

#endif  // ATTND_TESTS_INTEGRATION_RESET_PROXY_H_
