// How soon calls end whose server is stopped in the middle of their upload.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "attnd/client.h"
#include "base/clock.h"
#include "tests/bench/service/section.h"
#include "tests/hang_limit.h"

namespace attnd::bench {
namespace {

constexpr absl::Duration kDeadline = absl::Milliseconds(300);
constexpr absl::Duration kKeepalive = absl::Seconds(1);
constexpr absl::Duration kInTime = absl::Milliseconds(2300);  // all of these
constexpr int64_t kTokens = 1 << 14, kDim = 128;              // 8 MiB

class StoppedServer {
 public:
  StoppedServer(bool unix_socket, int connections)
      : q_(kTokens * kDim, 0.5f), kv_(kDim, 0.5f), process_(StartAttnd({})) {
    client::ClientOptions options;
    options.connections = connections;
    options.keepalive_time = options.keepalive_timeout = kKeepalive;
    client_ = Get(client::Client::Create(
        unix_socket ? process_->unix_socket() : process_->tcp(), options));
    // Every connection, before it is needed.
    for (int i = 0; i < options.connections; ++i) Serve();
  }
  ~StoppedServer() {
    client_.reset();
    process_->Continue();
  }

  void Stop() { process_->Stop(); }
  void Resume() {
    process_->Continue();
    Serve();
  }
  client::ForwardCall Call(int64_t tokens, std::vector<float>& o) const {
    o.resize(tokens * kDim);
    client::ForwardCall call;
    call.q = {client::DType::kF32, {1, tokens, 1, kDim}, q_.data()};
    call.k = call.v = {client::DType::kF32, {1, 1, 1, kDim}, kv_.data()};
    call.o = {client::DType::kF32, {1, tokens, 1, kDim}, o.data()};
    return call;
  }
  client::Client& client() { return *client_; }
  // Waits for its calls.
  void DestroyClient() { client_.reset(); }

 private:
  void Serve() {
    std::vector<float> o;
    Require(client_->Forward(Call(1, o), {testing::kHangLimit}).status());
  }

  std::vector<float> q_, kv_;
  std::unique_ptr<testing::ServerProcess> process_;
  std::unique_ptr<client::Client> client_;
};

absl::Duration SyncCall(StoppedServer& server, int64_t tokens) {
  std::vector<float> o;
  const absl::Time start = MonotonicNow();
  (void)server.client().Forward(server.Call(tokens, o), {kDeadline});
  return MonotonicNow() - start;
}

// Of a small call, behind one that has all the time in the world and whose
// write is stuck.
absl::Duration BehindAStuckCall(StoppedServer& server) {
  std::vector<float> o;
  absl::BlockingCounter ended(1);
  server.client().ForwardAsync(
      server.Call(kTokens, o), {testing::kHangLimit},
      [&](absl::StatusOr<client::Report>) { ended.DecrementCount(); });
  const absl::Duration took = SyncCall(server, 1);
  server.Resume();
  ended.Wait();
  return took;
}

// The longest of 12, half of them sent before the server is stopped.
absl::Duration AsyncCalls(StoppedServer& server) {
  constexpr int kCalls = 12;
  std::vector<std::vector<float>> o(kCalls);
  std::mutex mutex;
  absl::Duration worst;
  absl::BlockingCounter ended(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    if (i == kCalls / 2) server.Stop();
    server.client().ForwardAsync(
        server.Call(kTokens, o[i]), {kDeadline},
        [&, start = MonotonicNow()](absl::StatusOr<client::Report>) {
          {
            std::lock_guard lock(mutex);
            worst = std::max(worst, MonotonicNow() - start);
          }
          ended.DecrementCount();
        });
  }
  ended.Wait();
  return worst;
}

absl::Duration CancelledCall(StoppedServer& server) {
  std::vector<float> o;
  absl::BlockingCounter ended(1);
  const auto cancel = server.client().ForwardAsync(
      server.Call(kTokens, o), {testing::kHangLimit},
      [&](absl::StatusOr<client::Report>) { ended.DecrementCount(); });
  absl::SleepFor(absl::Milliseconds(200));  // until its write is stuck
  const absl::Time start = MonotonicNow();
  cancel();
  ended.Wait();
  return MonotonicNow() - start;
}

absl::Duration Destruction(StoppedServer& server) {
  std::vector<float> o;
  const absl::Time start = MonotonicNow();
  server.client().ForwardAsync(server.Call(kTokens, o), {kDeadline},
                               [](absl::StatusOr<client::Report>) {});
  server.DestroyClient();
  return MonotonicNow() - start;
}

}  // namespace

void Stopped(Table& table) {
  for (const bool unix_socket : {false, true}) {
    const std::string on = unix_socket ? " on a unix socket" : " on TCP";
    {
      StoppedServer server(unix_socket, 1);
      server.Stop();
      table.AtMost("a call with a deadline of 0.3 s" + on,
                   SyncCall(server, kTokens), kInTime);
      server.Resume();
      server.Stop();
      table.AtMost("a small one behind a stuck one" + on,
                   BehindAStuckCall(server), kInTime);
      server.Stop();
      table.AtMost("a call that is cancelled" + on, CancelledCall(server),
                   absl::Seconds(2));
      server.Resume();
      server.Stop();
      // Half a second for threads of gRPC's to end.
      table.AtMost("a client that is destroyed" + on, Destruction(server),
                   kInTime + absl::Milliseconds(500));
    }
    StoppedServer server(unix_socket, 2);
    table.AtMost("the slowest of 12 at once" + on, AsyncCalls(server), kInTime);
    server.Resume();
  }
}

}  // namespace attnd::bench
