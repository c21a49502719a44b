#include "tests/bench/service/closed_loop.h"

#include <utility>

#include "grpcpp/client_context.h"
#include "tests/integration/rpc.h"

namespace attnd::bench {

struct ClosedLoop::Call {
  grpc::ClientContext context;
  attn::v1::ForwardResponse response;
};

ClosedLoop::ClosedLoop(const std::string& target, int connections, int at_once,
                       attn::v1::ForwardRequest request, std::string token,
                       Refused refused)
    : request_(std::move(request)),
      token_(std::move(token)),
      refused_(refused) {
  for (int i = 0; i < connections; ++i) {
    stubs_.push_back(
        attn::v1::AttentionService::NewStub(testing::Connect(target)));
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
  if (!token_.empty()) {
    call->context.AddMetadata("authorization", "Bearer " + token_);
  }
  stub.async()->Forward(
      &call->context, &request_, &call->response,
      [this, call, &stub](const grpc::Status& status) {
        const bool is_limited =
            refused_ == Refused::kIsLimited &&
            status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
        ++(status.ok() ? ok_ : is_limited ? limited_ : failed_);
        if (status.ok() || is_limited) Next(stub);
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

}  // namespace attnd::bench
