// Malformed HTTP/2, HPACK and gRPC, one case a connection: each ends as the
// RFCs say or as its row lists with the reason, and the server serves the next
// request on another connection, and ends cleanly after all of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/hang_limit.h"
#include "tests/integration/http2_socket.h"
#include "tests/integration/malformed/case.h"
#include "tests/integration/malformed/requests.h"
#include "tests/integration/malformed/runner.h"
#include "tests/integration/malformed/tables.h"
#include "tests/integration/process.h"
#include "tests/integration/rpc.h"
#include "tests/server/bad_requests.h"

namespace attnd::testing {
namespace {

class MalformedInput : public ::testing::Test {
 protected:
  void SetUp() override {
    auto process = ServerProcess::Start(
        ATTND_BINARY, {"--memory_limit=128MiB", "--threads=1"});
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
  }

  // A build with sanitizers exits otherwise if they found something.
  void TearDown() override {
    if (process_ == nullptr) return;
    process_->Signal(SIGTERM);
    EXPECT_EQ(process_->Wait(), 0) << process_->log();
  }

  // On a connection of its own.
  absl::Status GoodRequest() {
    attn::v1::ForwardResponse response;
    return Forward(Connect(process_->tcp()), server::GoodForward(), response);
  }

  std::unique_ptr<ServerProcess> process_;
};

MalformedCases AllCases() {
  MalformedCases all;
  for (const auto& part :
       {ConnectionStartCases(), FrameSizeCases(), StreamStateCases(),
        ConnectionFrameCases(), HeaderBlockCases(), HpackCases(),
        PseudoHeaderCases(), HeaderCases(), GrpcCases(), ToleratedCases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_F(MalformedInput, IsRefusedAsTheRfcsSayAndTheNextRequestIsServed) {
  Summary summary;
  std::set<std::string> names;
  for (const MalformedCase& c : AllCases()) {
    SCOPED_TRACE(c.name + " (" + c.section + ")");
    EXPECT_TRUE(names.insert(c.name).second) << "a name twice";
    EXPECT_EQ(c.differs.has_value(), !c.why.empty());
    const Outcome outcome = OutcomeOf(c, process_->tcp());
    const std::string mismatch = Mismatch(c, outcome);
    EXPECT_EQ(mismatch, "");
    if (mismatch.empty()) summary.Add(c, outcome);
    const absl::Status next = GoodRequest();
    ASSERT_TRUE(next.ok()) << next << "\n" << process_->log();
  }
  std::cout << names.size() << " cases: " << summary.ToString();
  EXPECT_GE(names.size(), 200u);
}

// Where a client may end its connection: in the midst of anything.
struct Beginning {
  const char* name;
  std::string bytes;
  bool raw = false;  // as in MalformedCase
};

std::vector<Beginning> Beginnings() {
  const std::string good = GoodCall(1);
  const size_t headers = OpenStream().size();
  const std::string block = GoodHeaders();
  return {
      {"nothing", "", true},
      {"a preface", kPreface, true},
      {"half a preface", "PRI * HTTP", true},
      {"settings", ""},
      {"half a frame's head", good.substr(0, 5)},
      {"half of HEADERS", good.substr(0, headers / 2)},
      {"HEADERS", good.substr(0, headers)},
      {"HEADERS without END_HEADERS", Frame(kHeaders, 0, 1, block)},
      {"half of CONTINUATION",
       Frame(kHeaders, 0, 1, block) + FrameHead(9, kContinuation, 0, 1)},
      {"half a prefix", good.substr(0, headers + 9 + 2)},
      {"a prefix", good.substr(0, headers + 9 + 5)},
      {"half a message", good.substr(0, good.size() - 100)},
      {"a message less a byte", good.substr(0, good.size() - 1)},
      {"a call", good},
      {"a call and half another", good + GoodCall(3).substr(0, 300)},
      {"a watch", WatchCall()},
      {"half of DATA's padding", OpenStream() +
                                     FrameHead(20, kData, kPadded, 1) +
                                     "\x0a"
                                     "abc"},
      {"half of SETTINGS", FrameHead(6, kSettings, 0, 0) + "abc"},
      {"half of PING", FrameHead(8, kPing, 0, 0) + "abc"},
      {"half of GOAWAY", FrameHead(80, kGoAway, 0, 0) + "abc"},
      {"half of WINDOW_UPDATE", FrameHead(4, kWindowUpdate, 0, 0) + "a"},
      {"half of RST_STREAM", OpenStream() + FrameHead(4, kReset, 0, 1) + "a"},
      {"half of PRIORITY", FrameHead(5, kPriority, 0, 1) + "a"},
      {"half of an unknown frame", FrameHead(1000, 0x77, 0, 0) + "a"},
  };
}

// How a client's end of a connection goes.
enum class Ending { kShutdown, kClose, kReset };

void End(int fd, Ending ending) {
  if (ending == Ending::kShutdown) {
    shutdown(fd, SHUT_WR);
    while (ReceiveFrame(fd).has_value()) {
    }
    EXPECT_NE(errno, EAGAIN) << "never closed";
  }
  if (ending == Ending::kReset) {
    const linger reset = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  close(fd);
}

TEST_F(MalformedInput, ThatEndsInTheMidstLeavesNothingBehind) {
  ASSERT_TRUE(GoodRequest().ok());
  const int before = process_->usage().descriptors;
  for (const Ending ending :
       {Ending::kShutdown, Ending::kClose, Ending::kReset}) {
    for (const Beginning& c : Beginnings()) {
      SCOPED_TRACE(c.name);
      const int fd = ConnectedSocket(process_->tcp());
      if (!c.raw) StartHttp2(fd);
      SendBytes(fd, c.bytes);
      End(fd, ending);
      const absl::Status next = GoodRequest();
      ASSERT_TRUE(next.ok()) << next << "\n" << process_->log();
    }
  }
  EXPECT_TRUE(Eventually([&] {
    return process_->usage().descriptors <= before;
  })) << process_->usage().descriptors
      << ", before: " << before;
}

}  // namespace
}  // namespace attnd::testing
