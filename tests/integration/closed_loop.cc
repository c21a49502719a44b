#include "tests/integration/closed_loop.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "tests/integration/rpc.h"

namespace attnd::testing {

struct ClosedLoop::Call {
  grpc::ClientContext context;
  attn::v1::ForwardResponse response;
};

ClosedLoop::ClosedLoop(const std::string& target, int connections, int at_once,
                       attn::v1::ForwardRequest request)
    : request_(std::move(request)) {
  for (int i = 0; i < connections; ++i) {
    stubs_.push_back(attn::v1::AttentionService::NewStub(Connect(target)));
  }
  for (int i = 0; i < at_once; ++i) {
    for (const auto& stub : stubs_) Next(*stub);
  }
}

void ClosedLoop::Next(attn::v1::AttentionService::Stub& stub) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    ++running_;
  }
  auto call = std::make_shared<Call>();
  stub.async()->Forward(&call->context, &request_, &call->response,
                        [this, call, &stub](const grpc::Status& status) {
                          ++(status.ok() ? ok_ : failed_);
                          if (status.ok()) Next(stub);
                          std::lock_guard lock(mutex_);
                          --running_;
                          changed_.notify_all();
                        });
}

void ClosedLoop::Stop() {
  std::unique_lock lock(mutex_);
  stopped_ = true;
  changed_.wait(lock, [this] { return running_ == 0; });
}

void ClosedLoop::AwaitOk(int64_t calls) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ok_ >= calls || running_ == 0; });
}

std::vector<absl::Duration> Latencies(const std::string& target,
                                      const attn::v1::ForwardRequest& request,
                                      int calls) {
  const auto channel = Connect(target);
  std::vector<absl::Duration> latencies;
  attn::v1::ForwardResponse response;
  // The first ones connect and warm up.
  for (int i = -20; i < calls; ++i) {
    const absl::Time start = absl::Now();
    if (!Forward(channel, request, response).ok()) continue;
    if (i >= 0) latencies.push_back(absl::Now() - start);
  }
  std::sort(latencies.begin(), latencies.end());
  return latencies;
}

absl::Duration Quantile(const std::vector<absl::Duration>& sorted, double q) {
  if (sorted.empty()) return absl::InfiniteDuration();
  return sorted[static_cast<size_t>(q * (sorted.size() - 1))];
}

}  // namespace attnd::testing
