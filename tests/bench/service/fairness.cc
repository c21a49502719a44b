// Who gets how much of a device.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/server.h"
#include "tests/bench/service/closed_loop.h"
#include "tests/bench/service/section.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/fakes/slow_backend.h"
#include "tests/server/token_testing.h"

namespace attnd::bench {
namespace {

using server::Server;

// Every kernel takes 1 ms and there is one at a time, so that the order alone
// decides who gets how much.
std::unique_ptr<Server> OneMillisecondServer(
    const std::string& socket, const std::string& token_file = "") {
  server::ServerOptions options;
  options.identity.token_file = token_file;
  options.memory_limit_bytes = 512 << 20;
  options.unix_socket = socket;
  options.scheduler.lanes_per_device = 1;
  options.scheduler.max_batch_requests = 1;
  std::vector<std::unique_ptr<Backend>> devices;
  devices.push_back(
      std::make_unique<server::SlowBackend>(absl::Milliseconds(1)));
  return Get(Server::Start(options, std::move(devices)));
}

// Proportional to a request's floating-point operations.
double Cost(int64_t len) { return static_cast<double>(len) * len; }

void Connections(Table& table) {
  const testing::TempFolder folder;
  const auto server = OneMillisecondServer(folder.File("socket"));
  // Few bytes, and so many FLOPs that what each request is charged besides
  // does not count.
  constexpr int64_t kManyLen = 1024, kOneLen = 1536, kDim = 8;
  ClosedLoop many(absl::StrCat("127.0.0.1:", server->port()), 64, 2,
                  testing::RandomForward(kManyLen, 1, kDim));
  ClosedLoop one("unix:" + folder.File("socket"), 1, 64,
                 testing::RandomForward(kOneLen, 1, kDim));
  one.AwaitOk(50);
  const int64_t many_before = many.ok(), one_before = one.ok();
  one.AwaitOk(one_before + 500);
  const double many_cost = (many.ok() - many_before) * Cost(kManyLen);
  const double one_cost = (one.ok() - one_before) * Cost(kOneLen);
  table.Within("one connection's cost against that of 64", one_cost / many_cost,
               0.9, 1.1);
  table.AtMost("calls that failed", many.failed() + one.failed(), 0);
}

// Who calls is who has the token, however many connections say it. All come
// from one address.
void Identities(Table& table) {
  const testing::TempFolder folder;
  const server::TempTokenFile tokens;
  tokens.Write(absl::StrCat("many ", server::HashWord("many"), "\none ",
                            server::HashWord("one"), "\ntwice ",
                            server::HashWord("twice"), " shares=2\n"));
  const auto server =
      OneMillisecondServer(folder.File("socket"), tokens.path());
  const std::string target = absl::StrCat("127.0.0.1:", server->port());
  const auto request = testing::RandomForward(1024, 1, 8);
  ClosedLoop many(target, 64, 2, request, "many");
  for (const auto& [name, shares] :
       {std::pair<const char*, double>{"one", 1}, {"twice", 2}}) {
    ClosedLoop other(target, 1, 64, request, name);
    other.AwaitOk(50);
    const int64_t many_before = many.ok(), other_before = other.ok();
    other.AwaitOk(other_before + 1000);
    const double of_many = static_cast<double>(many.ok() - many_before);
    const double of_other = static_cast<double>(other.ok() - other_before);
    table.Within(
        absl::StrFormat("one connection with %.0f shares against 64 with 1",
                        shares),
        of_other / of_many, 0.9 * shares, 1.1 * shares);
    table.AtMost("calls that failed",
                 static_cast<double>(many.failed() + other.failed()), 0);
  }
}

// So many calls a second, over one connection and over 64.
void Quota(Table& table) {
  constexpr double kPerSecond = 100;
  constexpr absl::Duration kTime = absl::Seconds(5);
  const testing::TempFolder folder;
  const server::TempTokenFile tokens;
  tokens.Write(absl::StrCat(
      "many ", server::HashWord("many"), " rate=", kPerSecond, "\none ",
      server::HashWord("one"), " rate=", kPerSecond, "\n"));
  const auto server =
      OneMillisecondServer(folder.File("socket"), tokens.path());
  const std::string target = absl::StrCat("127.0.0.1:", server->port());
  const auto request = testing::RandomForward(1, 1, 8);
  constexpr auto kIsLimited = ClosedLoop::Refused::kIsLimited;
  ClosedLoop many(target, 64, 1, request, "many", kIsLimited);
  ClosedLoop one(target, 1, 4, request, "one", kIsLimited);
  // What one second allows at once is gone.
  many.AwaitOk(static_cast<int64_t>(kPerSecond) + 10);
  one.AwaitOk(static_cast<int64_t>(kPerSecond) + 10);
  const absl::Time start = MonotonicNow();
  const int64_t many_before = many.ok(), one_before = one.ok();
  absl::SleepFor(kTime);
  const double seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
  const auto per_second = [seconds](int64_t calls) {
    return static_cast<double>(calls) / seconds;
  };
  table.Within("calls a second of 100, 64 connections",
               per_second(many.ok() - many_before), 90, 110);
  table.Within("calls a second of 100, one connection",
               per_second(one.ok() - one_before), 90, 110);
  table.Shows("calls beyond the limits",
              static_cast<double>(many.limited() + one.limited()));
  table.AtMost("calls that failed",
               static_cast<double>(many.failed() + one.failed()), 0);
}

void Priorities(Table& table) {
  const testing::TempFolder folder;
  const auto server = OneMillisecondServer(folder.File("socket"));
  const std::string target = "unix:" + folder.File("socket");
  attn::v1::ForwardRequest high = testing::RandomForward(16, 1, 8);
  high.mutable_options()->set_priority(attn::v1::PRIORITY_HIGH);
  attn::v1::ForwardRequest low = testing::RandomForward(16, 1, 8);
  low.mutable_options()->set_priority(attn::v1::PRIORITY_LOW);
  ClosedLoop flood(target, 1, 64, high);
  flood.AwaitOk(100);
  ClosedLoop starved(target, 1, 8, low);
  const int64_t before = flood.ok();
  starved.AwaitOk(20);
  // 16 to 1 as the policy has it.
  const double ratio = static_cast<double>(flood.ok() - before) / starved.ok();
  table.Within("requests of high priority to one of low", ratio, 1, 32);
}

}  // namespace

void Fairness(Table& table) {
  Connections(table);
  Identities(table);
  Quota(table);
  Priorities(table);
}

}  // namespace attnd::bench
