#ifndef ATTND_TESTS_BENCH_SECURITY_GOOD_CALLER_H_
#define ATTND_TESTS_BENCH_SECURITY_GOOD_CALLER_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "attnd/client.h"
#include "tests/bench/smallest_caller.h"

namespace attnd::bench {

struct GoodCalls {
  std::vector<double> kept_ms;   // over a connection that stays
  std::vector<double> fresh_ms;  // over one of its own, which it waits for
  int failed = 0;
  std::string first_error;
};

// A client that does nothing wrong, from 127.0.0.1: small calls one after
// another, every second one over a fresh connection. None is tried again.
// Not thread-safe.
class GoodCaller {
 public:
  GoodCaller(const std::string& target, client::TlsOptions tls);

  GoodCalls CallFor(absl::Duration time);

 private:
  // Milliseconds until the answer, the client's making included.
  void Time(SmallestCaller* kept, std::vector<double>& to, GoodCalls& calls);

  const std::string target_;
  client::ClientOptions options_;
  SmallestCaller kept_;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_GOOD_CALLER_H_
