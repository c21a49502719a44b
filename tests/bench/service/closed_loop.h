#ifndef ATTND_TESTS_BENCH_SERVICE_CLOSED_LOOP_H_
#define ATTND_TESTS_BENCH_SERVICE_CLOSED_LOOP_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attn/v1/attention.grpc.pb.h"

namespace attnd::bench {

// A client that saturates: `at_once` calls on each of `connections`, each
// followed by the next until Stop or until it fails. A `token`, unless it is
// empty, is said with each.
class ClosedLoop {
 public:
  // What RESOURCE_EXHAUSTED is: a failure, or the limit that the client is
  // known to have, at which it goes on.
  enum class Refused : uint8_t { kFails, kIsLimited };

  ClosedLoop(const std::string& target, int connections, int at_once,
             attn::v1::ForwardRequest request, std::string token = "",
             Refused refused = Refused::kFails);
  ~ClosedLoop() { Stop(); }

  // Waits for the calls in flight.
  void Stop();

  int64_t ok() const { return ok_; }
  int64_t failed() const { return failed_; }
  int64_t limited() const { return limited_; }
  // Waits until this many have succeeded, or all have failed.
  void AwaitOk(int64_t calls);

 private:
  struct Call;
  void Next(attn::v1::AttentionService::Stub& stub);

  const attn::v1::ForwardRequest request_;
  const std::string token_;
  const Refused refused_;
  std::vector<std::unique_ptr<attn::v1::AttentionService::Stub>> stubs_;
  std::atomic<int64_t> ok_{0}, failed_{0}, limited_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;
  bool stopped_ = false;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SERVICE_CLOSED_LOOP_H_
