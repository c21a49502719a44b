// How soon a server is gone once it is told to go.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/bench/service/closed_loop.h"
#include "tests/bench/service/section.h"
#include "tests/integration/http2.h"
#include "tests/integration/rpc.h"

namespace attnd::bench {
namespace {

using testing::Connect;
using testing::ServerProcess;

// From now until it has ended; its exit status must be `status`.
absl::Duration UntilItEnds(ServerProcess& process, int status = 0) {
  const absl::Time start = MonotonicNow();
  if (process.Wait() != status) {
    Require(absl::InternalError("attnd ends otherwise:\n" + process.log()));
  }
  return MonotonicNow() - start;
}

std::unique_ptr<testing::PendingForward> HoldALane(
    const ServerProcess& process) {
  auto call = std::make_unique<testing::PendingForward>(
      Connect(process.tcp()), testing::EndlessForward(),
      absl::InfiniteDuration());
  while (process.Metric("attnd_running_requests") != 1) {
    if (call->WaitFor(absl::Milliseconds(1))) Require(call->Wait());
  }
  return call;
}

void Idle(Table& table) {
  const auto process = StartAttnd({"--drain_time=1h"});
  process->Signal(SIGTERM);
  table.AtMost("idle, gone after", UntilItEnds(*process), absl::Seconds(2));
}

void NotDone(Table& table) {
  const auto process = StartAttnd({"--drain_time=1s", "--metrics_port=0"});
  const auto call = HoldALane(*process);
  process->Signal(SIGTERM);
  table.AtMost("with hours of work and a drain time of 1 s",
               UntilItEnds(*process), absl::Seconds(6));
}

void SecondSignal(Table& table) {
  const auto process = StartAttnd({"--drain_time=1h", "--metrics_port=0"});
  const auto call = HoldALane(*process);
  process->Signal(SIGTERM);
  if (!process->AwaitLog("draining")) {
    Require(absl::InternalError("it does not drain"));
  }
  process->Signal(SIGTERM);
  table.AtMost("after a second signal", UntilItEnds(*process, 1),
               absl::Seconds(5));
}

// Who asked for 8 MiB and reads none of it.
void DeafClients(Table& table) {
  const auto process = StartAttnd({"--drain_time=2s", "--metrics_port=0"});
  attn::v1::ForwardRequest request;
  *request.mutable_q() = testing::RandomForward(8192, 1, 1).q();
  *request.mutable_k() = testing::RandomForward(1, 1, 1).k();
  *request.mutable_v() = testing::RandomForward(1, 1, 256).v();
  std::vector<int> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(testing::SendRawHttp2Call(
        process->tcp(), "/attn.v1.AttentionService/Forward", {},
        request.SerializeAsString()));
  }
  process->Signal(SIGTERM);
  table.AtMost("with clients that do not read and a drain time of 2 s",
               UntilItEnds(*process), absl::Seconds(7));
  for (const int client : clients) close(client);
}

void StoppedReader(Table& table) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0 ||
      fcntl(pipe[1], F_SETPIPE_SZ, 4096) != 4096) {
    Require(absl::InternalError("no pipe"));
  }
  const auto process = StartAttnd({"--drain_time=2s"}, pipe[1]);
  const int filler = open(absl::StrCat("/proc/self/fd/", pipe[1]).c_str(),
                          O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  while (write(filler, "", 1) == 1) {
  }
  process->Signal(SIGTERM);
  table.AtMost("idle, with a log that nobody reads", UntilItEnds(*process),
               absl::Seconds(3));
  for (const int fd : {filler, pipe[0], pipe[1]}) close(fd);
}

}  // namespace

void Drain(Table& table) {
  Idle(table);
  NotDone(table);
  SecondSignal(table);
  DeafClients(table);
  StoppedReader(table);
}

}  // namespace attnd::bench
