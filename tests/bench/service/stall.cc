// Whom a server keeps waiting while it stands still, as attnload sees it.

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attnd/client.h"
#include "client/attnload/load.h"
#include "server/server.h"
#include "tests/bench/service/section.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::bench {
namespace {

// A device that stands still for a second, once, at its 50th run.
class StallingBackend : public server::IdentityBackend {
 public:
  absl::Status On(Stage stage, Group) override {
    if (stage == Stage::kRun && ++runs_ == 50) absl::SleepFor(absl::Seconds(1));
    return absl::OkStatus();
  }

 private:
  std::atomic<int64_t> runs_{0};
};

}  // namespace

void Stall(Table& table) {
  server::ServerOptions options;
  // One lane, one request at a time: all stand behind the one that stalls.
  options.scheduler.lanes_per_device = 1;
  std::vector<std::unique_ptr<Backend>> devices;
  devices.push_back(std::make_unique<StallingBackend>());
  const auto server = Get(server::Server::Start(options, std::move(devices)));
  client::ClientOptions client_options;
  client_options.max_attempts = 1;
  const auto client = Get(client::Client::Create(
      absl::StrCat("127.0.0.1:", server->port()), client_options));
  attnload::Workload workload({*attnload::ParseShape("s4:h1:d8")}, 1);
  attnload::LoadOptions load;
  load.open_loop = true;
  load.level = 200;
  load.requests = 600;  // about 3 s
  load.warm_up = absl::ZeroDuration();
  load.check_share = 0;  // the answers are not attention
  const attnload::Results results = attnload::RunLoad(
      *client, workload, load,
      [](const attnload::Results&, int64_t, absl::Duration) {});
  table.AtLeast("requests answered", results.ok, 600);
  // A third of all came during the stall, one in a hundred near its start.
  table.AtLeast("p99", results.latency.Quantile(0.99), absl::Milliseconds(800));
  table.AtMost("p50", results.latency.Quantile(0.5), absl::Milliseconds(500));
}

}  // namespace attnd::bench
