// How soon connections are served again after descriptors ran out, and what
// refusing them costs.

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "tests/bench/service/section.h"
#include "tests/bench/stats.h"
#include "tests/integration/rpc.h"

namespace attnd::bench {
namespace {

using testing::ServerProcess;

// A connection from 127.0.0.2 that says nothing; whether it is taken is not
// waited for.
Descriptor SilentPeer(const std::string& target) {
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Its port is chosen when it connects: one is free for each server.
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) {
    return Descriptor();
  }
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(std::atoi(target.substr(target.rfind(':') + 1).c_str()));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) {
    return Descriptor();
  }
  return fd;
}

std::vector<Descriptor> SilentPeers(const std::string& target, int count) {
  std::vector<Descriptor> peers;
  for (int i = 0; i < count; ++i) peers.push_back(SilentPeer(target));
  return peers;
}

void LimitDescriptors(const ServerProcess& process, rlim_t most) {
  rlimit limit = {};
  if (prlimit(process.pid(), RLIMIT_NOFILE, nullptr, &limit) != 0) {
    Require(absl::InternalError("prlimit"));
  }
  limit.rlim_cur = most;
  prlimit(process.pid(), RLIMIT_NOFILE, &limit, nullptr);
}

// Until a call on a connection of its own is answered.
absl::Duration UntilServed(const ServerProcess& process) {
  const absl::Time start = MonotonicNow();
  while (testing::Health(testing::Connect(process.tcp())) != "SERVING") {
    absl::SleepFor(absl::Milliseconds(1));
  }
  return MonotonicNow() - start;
}

// Of all processors, that the process has had so far.
absl::Duration CpuTime(const ServerProcess& process) {
  std::ifstream file(absl::StrCat("/proc/", process.pid(), "/stat"));
  std::string text;
  std::getline(file, text);
  // Past the name, which may hold anything: the 12th and 13th are user and
  // system time.
  const std::vector<std::string> words =
      absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
  int64_t user = 0, system = 0;
  if (words.size() < 13 || !absl::SimpleAtoi(words[11], &user) ||
      !absl::SimpleAtoi(words[12], &system)) {
    Require(absl::InternalError("/proc/PID/stat"));
  }
  return absl::Seconds(user + system) / sysconf(_SC_CLK_TCK);
}

// The median in us of small calls, one after another, for two seconds.
double MedianLatency(const std::string& target) {
  const auto channel = testing::Connect(target);
  const attn::v1::ForwardRequest request = testing::RandomForward(1, 1, 64);
  attn::v1::ForwardResponse response;
  std::vector<double> latencies;
  const absl::Time end = MonotonicNow() + absl::Seconds(2);
  while (MonotonicNow() < end) {
    const absl::Time start = MonotonicNow();
    Require(testing::Forward(channel, request, response));
    latencies.push_back(absl::ToDoubleMicroseconds(MonotonicNow() - start));
  }
  return Quantile(latencies, 0.5);
}

void WithoutDescriptors(Table& table) {
  constexpr int kPeers = 200;
  const auto process =
      StartAttnd({"--memory_limit=128MiB", "--header_time=1h"});
  const auto channel = testing::Connect(process->tcp());
  const auto call = [&channel] {
    return testing::Health(channel) == "SERVING" ? "served" : "not served";
  };
  call();
  const int open = process->usage().descriptors;
  LimitDescriptors(*process, open + 16);
  auto peers = SilentPeers(process->tcp(), kPeers);
  table.Holds("without descriptors, who is connected is", call(),
              testing::Health(channel) == "SERVING");
  peers.clear();
  table.AtMost("another is served, after some are free,", UntilServed(*process),
               absl::Seconds(1));
  // Not even those in reserve can be used.
  LimitDescriptors(*process, 1);
  peers = SilentPeers(process->tcp(), kPeers);
  const absl::Duration before = CpuTime(*process);
  constexpr absl::Duration kWatched = absl::Seconds(2);
  absl::SleepFor(kWatched);
  table.AtMost("of a processor while it cannot accept",
               100 * absl::FDivDuration(CpuTime(*process) - before, kWatched),
               5, " %");
  LimitDescriptors(*process, open + 2 * kPeers);
  table.AtMost("those who waited are served, and another,",
               UntilServed(*process), absl::Seconds(1));
}

void WhileRefusing(Table& table) {
  const auto process =
      StartAttnd({"--memory_limit=128MiB", "--header_time=1h",
                  "--metrics_port=0", "--max_connections_per_client=250"});
  const double alone = MedianLatency(process->tcp());
  const auto peers = SilentPeers(process->tcp(), 250);
  std::atomic<bool> stop = false;
  std::thread flood([&] {
    while (!stop) SilentPeer(process->tcp());
  });
  const double beside = MedianLatency(process->tcp());
  stop = true;
  flood.join();
  const double refused = process->Metric(
      "attnd_refused_connections_total{reason=\"max_connections_per_client\"}");
  table.AtLeast("connections refused a second", refused / 2, 1000);
  table.AtMost(absl::StrCat("median of small calls beside, against ",
                            std::lround(alone), " us alone"),
               beside / alone, 4, "x");
  table.AtMost("bytes of log", static_cast<double>(process->log().size()),
               20'000);
}

}  // namespace

void ManyConnections(Table& table) {
  WithoutDescriptors(table);
  WhileRefusing(table);
}

}  // namespace attnd::bench
