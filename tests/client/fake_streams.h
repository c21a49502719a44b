#ifndef ATTND_TESTS_CLIENT_FAKE_STREAMS_H_
#define ATTND_TESTS_CLIENT_FAKE_STREAMS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/random/random.h"
#include "client/transport.h"

namespace attnd::client {

// One stream, which the test steps: nothing happens on it by itself.
class FakeStream final : public ByteStream {
 public:
  FakeStream(std::string method, uint32_t turn, CallHeaders headers,
             StreamEvents& events)
      : method(std::move(method)),
        turn(turn),
        headers(std::move(headers)),
        events_(&events) {}

  void Start(const std::vector<wire::Piece>& pieces) override {
    ASSERT_FALSE(std::exchange(started, true)) << "started twice";
    Write(pieces);
  }
  void Write(const std::vector<wire::Piece>& pieces) override {
    if (ended) return;
    ASSERT_TRUE(started) << "written to before it began";
    ASSERT_FALSE(writing) << "two writes at once";
    ASSERT_FALSE(closed) << "written to after its end";
    std::string bytes;
    for (const wire::Piece& piece : pieces) {
      bytes += piece.owned;
      bytes.append(piece.borrowed.data(), piece.borrowed.size());
    }
    written.push_back(std::move(bytes));
    writing = true;
  }
  void CloseWrites() override {
    if (ended) return;
    ASSERT_FALSE(writing) << "closed while writing";
    ASSERT_FALSE(std::exchange(closed, true)) << "closed twice";
  }
  void Cancel() override { cancelled = true; }

  // The test's side of it. The message that is being written has been taken, or
  // never will be.
  void TakeWrite(bool ok = true) {
    ASSERT_TRUE(writing) << method;
    writing = false;
    if (!ok) written.pop_back();
    events_->OnWritten(ok);
  }
  // The message comes in fragments cut at random places, in memory that is
  // gone afterwards.
  void Send(const std::string& message) {
    static absl::BitGen rng;
    auto bytes = std::make_unique<std::string>(message);
    std::vector<absl::string_view> fragments;
    for (size_t at = 0; at < bytes->size();) {
      const size_t size =
          absl::Uniform<size_t>(absl::IntervalClosed, rng, 1, bytes->size());
      fragments.push_back(absl::string_view(*bytes).substr(at, size));
      at += fragments.back().size();
    }
    events_->OnMessage(fragments);
  }
  void End(absl::Status status) {
    ASSERT_TRUE(started && !ended);
    ended = true;
    std::exchange(events_, nullptr)->OnEnd(std::move(status));
  }

  const std::string method;
  const uint32_t turn;
  const CallHeaders headers;
  std::vector<std::string> written;  // the last one also while it is written
  bool started = false, writing = false, closed = false;
  bool cancelled = false, ended = false;

 private:
  StreamEvents* events_;
};

// The streams that have been opened, in order.
class FakeStreams {
 public:
  uint32_t TakeTurn() { return next_turn_++; }

  absl::StatusOr<std::shared_ptr<ByteStream>> Open(const std::string& method,
                                                   uint32_t turn,
                                                   const CallHeaders& headers,
                                                   StreamEvents& events) {
    if (!failure.ok()) return failure;
    return all.emplace_back(
        std::make_shared<FakeStream>(method, turn, headers, events));
  }

  FakeStream& at(size_t index) { return *all.at(index); }
  size_t size() const { return all.size(); }

  std::deque<std::shared_ptr<FakeStream>> all;
  absl::Status failure;  // of opening one

 private:
  uint32_t next_turn_ = 100;
};

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_FAKE_STREAMS_H_
