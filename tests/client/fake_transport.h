#ifndef ATTND_TESTS_CLIENT_FAKE_TRANSPORT_H_
#define ATTND_TESTS_CLIENT_FAKE_TRANSPORT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "client/transport.h"
#include "tests/client/fake_streams.h"

namespace attnd::client {

// A response cut into fragments at random places, in memory that is poisoned
// when the response is released.
class FakeResponse final : public Response {
 public:
  explicit FakeResponse(std::string bytes) : bytes_(std::move(bytes)) {
    absl::BitGen rng;
    for (size_t at = 0; at < bytes_.size();) {
      const size_t size =
          absl::Uniform<size_t>(absl::IntervalClosed, rng, 1, bytes_.size());
      fragments_.push_back(absl::string_view(bytes_).substr(at, size));
      at += fragments_.back().size();
    }
  }
  ~FakeResponse() override { bytes_.assign(bytes_.size(), '\xa5'); }

  absl::Span<const absl::string_view> fragments() const override {
    return fragments_;
  }

 private:
  std::string bytes_;
  std::vector<absl::string_view> fragments_;
};

// Keeps every attempt until the test answers it; or answers at once, inside
// Start, when `answer` is set.
class FakeTransport final : public Transport {
 public:
  struct Attempt {
    std::string method;
    const std::vector<wire::Piece>* pieces = nullptr;
    CallHeaders headers;
    Completion done;
    bool cancelled = false;

    std::string Bytes() const {
      std::string bytes;
      for (const wire::Piece& piece : *pieces) {
        bytes += piece.owned;
        bytes.append(piece.borrowed.data(), piece.borrowed.size());
      }
      return bytes;
    }
  };

  std::function<void()> Start(const std::string& method,
                              const std::vector<wire::Piece>& pieces,
                              const CallHeaders& headers,
                              Completion done) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const size_t index = attempts_.size();
    attempts_.push_back({method, &pieces, headers, std::move(done)});
    lock.unlock();
    if (answer) Answer(index, answer(at(index)));
    return [this, index] {
      std::lock_guard<std::mutex> lock(mutex_);
      attempts_[index].cancelled = true;
    };
  }

  // A call that has been opened.
  struct Opening {
    std::string method;
    int64_t bytes = 0;
    CallHeaders headers;
    bool has_run = false;
    bool is_over = false;
  };

  // Null unless `opens` is set. What has been opened becomes an attempt as soon
  // as it is run.
  std::unique_ptr<OpenedCall> Open(const std::string& method, int64_t bytes,
                                   const CallHeaders& headers) override {
    if (!opens) return nullptr;
    openings.push_back({method, bytes, headers});
    return std::make_unique<FakeOpenedCall>(*this, openings.back());
  }

  uint32_t TakeTurn() override { return streams.TakeTurn(); }
  absl::StatusOr<std::shared_ptr<ByteStream>> OpenStream(
      const std::string& method, uint32_t turn, const CallHeaders& headers,
      StreamEvents& events) override {
    return streams.Open(method, turn, headers, events);
  }

  size_t size() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return attempts_.size();
  }
  Attempt& at(size_t index) {
    std::lock_guard<std::mutex> lock(mutex_);
    return attempts_[index];
  }

  void Answer(size_t index, Result result) {
    at(index).pieces = nullptr;  // no longer ours to read
    std::exchange(at(index).done, nullptr)(std::move(result));
  }
  void Answer(size_t index, std::string bytes) {
    Answer(index, Result(std::make_unique<FakeResponse>(std::move(bytes))));
  }

  std::function<Result(const Attempt&)> answer;
  FakeStreams streams;
  bool opens = false;
  std::deque<Opening> openings;

 private:
  class FakeOpenedCall final : public OpenedCall {
   public:
    FakeOpenedCall(FakeTransport& transport, Opening& opening)
        : transport_(transport), opening_(opening) {}
    ~FakeOpenedCall() override { opening_.is_over = true; }
    void Run(const std::vector<wire::Piece>& pieces, Completion done) override {
      opening_.has_run = true;
      transport_.Start(opening_.method, pieces, opening_.headers,
                       std::move(done));
    }

   private:
    FakeTransport& transport_;
    Opening& opening_;
  };

  mutable std::mutex mutex_;
  std::deque<Attempt> attempts_;  // a deque: `at` stays valid
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_FAKE_TRANSPORT_H_
