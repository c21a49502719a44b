#include "tests/integration/soak.h"

#include <signal.h>

#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/support/status.h"
#include "tests/hang_limit.h"
#include "tests/integration/http_get.h"

namespace attnd::testing {
namespace {

constexpr int kOk = grpc::StatusCode::OK;

int Sum(const MixedLoad::Codes& codes) {
  return std::accumulate(codes.begin(), codes.end(), 0);
}

int SumGivenUp(const MixedLoad::Codes& codes) {
  int sum = 0;
  for (size_t code = 0; code < codes.size(); ++code) {
    if (Soak::GivenUp(static_cast<int>(code))) sum += codes[code];
  }
  return sum;
}

// What keeps `server` from being how the server counts the calls of `clients`,
// or "". Codes that it sent are exact. It never sees some of the calls that
// clients give up, and it has answered others of them.
std::string Contradiction(const MixedLoad::Codes& clients,
                          const MixedLoad::Codes& server) {
  const int given_up = SumGivenUp(clients);
  for (int code = 0; code < static_cast<int>(clients.size()); ++code) {
    if (Soak::GivenUp(code)) continue;
    const int most = clients[code] + (code == kOk ? given_up : 0);
    if (server[code] < clients[code] || server[code] > most) {
      return absl::StrCat("of ", Soak::Name(code), " clients saw ",
                          clients[code], " and the server counts ",
                          server[code]);
    }
  }
  if (Sum(server) > Sum(clients) || Sum(server) < Sum(clients) - given_up) {
    return absl::StrCat("clients saw ", Sum(clients), " calls end, ", given_up,
                        " of them given up, and the server counts ",
                        Sum(server));
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Soak>> Soak::Start(const std::string& binary) {
  auto process = ServerProcess::Start(
      binary, {"--memory_limit=256MiB", "--threads=2", "--metrics_port=0"});
  if (!process.ok()) return process.status();
  return std::unique_ptr<Soak>(new Soak(*std::move(process)));
}

void Soak::WarmUp() {
  Run(200);
  idle_ = Rest();
}

void Soak::Run(int calls) {
  Load({process_->tcp(), process_->unix_socket(), process_->tcp()},
       MixedLoad::Mix::kEverything, calls);
}

void Soak::RunLarge(int calls) {
  std::vector<std::string> targets;
  for (int i = 0; i < 4; ++i) {
    targets.push_back(process_->tcp());
    targets.push_back(process_->unix_socket());
  }
  Load(targets, MixedLoad::Mix::kLarge, calls);
}

void Soak::Load(const std::vector<std::string>& targets, MixedLoad::Mix mix,
                int calls) {
  MixedLoad load(targets, mix);
  load.Run(calls);
  for (int op = 0; op < 2; ++op) {
    for (int code = 0; code < 17; ++code) {
      seen_[op][code] += load.codes(static_cast<Op>(op))[code];
    }
  }
}

Usage Soak::Rest() const {
  Usage usage;
  (void)Eventually([&] {
    usage = process_->usage();
    return AccountBytes() == 0 &&
           (idle_.threads == 0 || (usage.threads <= idle_.threads &&
                                   usage.descriptors <= idle_.descriptors));
  });
  return usage;
}

double Soak::AccountBytes() const {
  return process_->Metric("attnd_account_bytes");
}

std::string Soak::Contradiction() const {
  std::string found;
  (void)Eventually([&] {
    const Counts server = ServerCounts();
    found = testing::Contradiction(seen_[0], server[0]);
    if (found.empty()) found = testing::Contradiction(seen_[1], server[1]);
    return found.empty();
  });
  return found;
}

Soak::Counts Soak::ServerCounts() const {
  const std::string metrics = process_->Metrics();
  Counts counts;
  for (int code = 0; code < 17; ++code) {
    for (int op = 0; op < 2; ++op) {
      counts[op][code] = static_cast<int>(
          MetricValue(
              metrics,
              absl::StrFormat("attnd_requests_total{code=\"%s\",method=\"%s\"}",
                              Name(code), op == 0 ? "Forward" : "Backward"))
              .value_or(-1));
    }
  }
  return counts;
}

bool Soak::GivenUp(int code) {
  return code == grpc::StatusCode::CANCELLED ||
         code == grpc::StatusCode::DEADLINE_EXCEEDED ||
         code == grpc::StatusCode::UNKNOWN;
}

std::string Soak::Name(int code) {
  return code == kOk
             ? "OK"
             : absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

int Soak::Stop() {
  process_->Signal(SIGTERM);
  return process_->Wait().value_or(-1);
}

std::string Text(const Usage& usage) {
  constexpr double kMiB = 1 << 20;
  return absl::StrFormat(
      "%.1f MiB resident, peak %.1f, %d threads (%d with gRPC's), %d fds",
      usage.resident_bytes / kMiB, usage.peak_resident_bytes / kMiB,
      usage.threads, usage.all_threads, usage.descriptors);
}

}  // namespace attnd::testing
