// Transfers against a server in memory that says things in any order it may,
// over streams that lose what they carry.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/transfer_fixture.h"
#include "tests/thinned.h"

namespace attnd::client {
namespace {

// One run: of all that may happen next, in either direction, something does.
class RandomRun : public TransferTest {
 public:
  explicit RandomRun(uint32_t seed) : rng_(seed) {}
  void TestBody() override {}

  void Run() {
    wanted_ = 1 + Draw(4);
    loses_ = Draw(2) == 0;
    Start(wanted_);
    for (int i = 0; i < 3; ++i) to_send_.insert(i);
    for (int step = 0; !result_.has_value(); ++step) {
      ASSERT_LT(step, 10'000) << "it never ends";
      ASSERT_TRUE(Step()) << "nothing can happen any more";
    }
    ExpectDone();
    received_.ExpectAllOf(forward_);
    EXPECT_LE(result_->streams, granted_);
  }

 private:
  using Event = std::function<void()>;

  int64_t Draw(int64_t below) {
    return std::uniform_int_distribution<int64_t>(0, below - 1)(rng_);
  }

  bool Step() {
    std::vector<Event> events;
    for (size_t i = 0; i < transport_.streams.size(); ++i) {
      if (!at(i).ended) AddEvents(i, events);
    }
    if (events.empty()) return false;
    events[Draw(events.size())]();
    executor_.RunReady();
    return true;
  }

  void AddEvents(size_t i, std::vector<Event>& events) {
    if (at(i).writing) {
      events.push_back([this, i] {
        // What is taken may still be lost on its way.
        const bool lost = i > 0 && loses_ && Draw(4) == 0;
        if (!lost) received_.Take(at(i).written.back());
        at(i).TakeWrite();
      });
      if (i > 0 && loses_ && Draw(4) == 0) {
        events.push_back([this, i] {
          at(i).TakeWrite(false);
          broken_.insert(i);
        });
      }
    }
    if (i > 0) return AddJoinedEvents(i, events);
    if (!admitted_ && received_.header.has_forward()) {
      events.push_back([this] {
        admitted_ = true;
        granted_ = 1 + static_cast<int>(Draw(wanted_));
        at(0).Send(Admitted(granted_));
      });
    }
    if (received_.inputs_sent.has_value()) AddMainEvents(events);
  }

  void AddMainEvents(std::vector<Event>& events) {
    if (received_.chunks.size() < 8) {
      // All that were counted have ended: what is not here was lost.
      if (!asked_ && JoinedHaveClosed()) {
        events.push_back([this] {
          asked_ = true;
          at(0).Send(MissingInputs());
        });
      }
      return;
    }
    if (responded_ && !received_.missing.empty()) {
      for (const auto& range : received_.missing[0].ranges()) {
        for (int64_t at = 0; at < range.bytes(); at += kChunk) {
          to_send_.insert((range.offset() + at) / kChunk);
        }
      }
      received_.missing.clear();
    }
    AddResultEvents(0, events);
    if (to_send_.empty() && !responded_) {
      events.push_back([this] {
        responded_ = true;
        at(0).Send(forward_.Response());
      });
    }
    if (at(0).closed) events.push_back([this] { at(0).End(absl::OkStatus()); });
  }

  void AddJoinedEvents(size_t i, std::vector<Event>& events) {
    if (received_.chunks.size() == 8 && at(i).started && !at(i).writing &&
        !responded_) {
      AddResultEvents(i, events);
    }
    const bool done = (responded_ || to_send_.empty()) && admitted_ &&
                      received_.chunks.size() == 8;
    if (at(i).cancelled || broken_.count(i) > 0 || (at(i).closed && done)) {
      events.push_back([this, i] { at(i).End(absl::OkStatus()); });
    } else if (loses_ && Draw(10) == 0) {
      events.push_back(
          [this, i] { at(i).End(absl::UnavailableError("lost")); });
    }
  }

  void AddResultEvents(size_t i, std::vector<Event>& events) {
    for (const int64_t chunk : to_send_) {
      events.push_back([this, i, chunk] {
        to_send_.erase(chunk);
        if (i > 0 && loses_ && Draw(2) == 0) return;
        SendResult(i, chunk);
        if (Draw(8) == 0) SendResult(i, chunk);
      });
    }
  }

  bool JoinedHaveClosed() const {
    for (size_t i = 1; i < transport_.streams.all.size(); ++i) {
      const FakeStream& stream = *transport_.streams.all[i];
      if (!stream.closed && !stream.ended) return false;
    }
    return true;
  }

  std::string MissingInputs() const {
    attn::v1::ExchangeResponse message;
    const auto add = [&](int tensor, const std::string& bytes) {
      for (int64_t at = 0; at < bytes.size(); at += kChunk) {
        if (received_.chunks.count({tensor, at / kChunk}) > 0) continue;
        auto& range = *message.mutable_missing()->add_ranges();
        range.set_tensor(tensor);
        range.set_offset(at);
        range.set_bytes(std::min<int64_t>(kChunk, bytes.size() - at));
      }
    };
    add(kQ, forward_.q);
    add(kK, forward_.k);
    return message.SerializeAsString();
  }

  std::mt19937 rng_;
  int wanted_ = 1, granted_ = 1;
  bool loses_ = false;
  bool admitted_ = false, asked_ = false, responded_ = false;
  std::set<int64_t> to_send_;  // chunks of O
  std::set<size_t> broken_;
};

TEST(TransferRandomTest, EveryByteArrivesBothWays) {
  for (uint32_t seed = 0; seed < 500; seed += testing::kProblemStep) {
    SCOPED_TRACE(seed);
    RandomRun run(seed);
    run.Run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace attnd::client
