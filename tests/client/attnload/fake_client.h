#ifndef ATTND_TESTS_CLIENT_ATTNLOAD_FAKE_CLIENT_H_
#define ATTND_TESTS_CLIENT_ATTNLOAD_FAKE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attnd/client.h"

namespace attnd::attnload {

// Answers each call on a thread of its own with what `serve` says, which may
// look at the call.
class FakeClient : public client::Client {
 public:
  using Serve = std::function<absl::StatusOr<client::Report>(int64_t call)>;
  using Look = std::function<void(const client::ForwardCall&)>;
  explicit FakeClient(Serve serve) : serve_(std::move(serve)) {}
  ~FakeClient() override {
    for (std::thread& thread : threads_) thread.join();
  }

  absl::StatusOr<client::Report> Forward(const client::ForwardCall&,
                                         const client::CallOptions&) override {
    return absl::UnimplementedError("not used");
  }
  absl::StatusOr<client::Report> Backward(const client::BackwardCall&,
                                          const client::CallOptions&) override {
    return absl::UnimplementedError("not used");
  }
  std::function<void()> ForwardAsync(const client::ForwardCall& call,
                                     const client::CallOptions&,
                                     Callback done) override {
    if (look) look(call);
    Start(std::move(done));
    return [] {};
  }
  std::function<void()> BackwardAsync(const client::BackwardCall&,
                                      const client::CallOptions&,
                                      Callback done) override {
    Start(std::move(done));
    return [] {};
  }
  void AddRegion(std::shared_ptr<client::Region>) override {}
  void RemoveRegion(const std::shared_ptr<client::Region>&) override {}
  absl::StatusOr<client::ServerInfo> GetServerInfo(
      const client::CallOptions&) override {
    return client::ServerInfo{};
  }
  absl::Status CheckHealth(const std::string&,
                           const client::CallOptions&) override {
    return absl::OkStatus();
  }

  Look look;  // on the caller's thread

 private:
  void Start(Callback done) {
    const int64_t call = calls_++;
    threads_.emplace_back(
        [this, call, done = std::move(done)] { done(serve_(call)); });
  }

  const Serve serve_;
  int64_t calls_ = 0;  // one thread sends
  std::vector<std::thread> threads_;
};

}  // namespace attnd::attnload

#endif  // ATTND_TESTS_CLIENT_ATTNLOAD_FAKE_CLIENT_H_
