#include "tests/integration/malformed/runner.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/http2_socket.h"
#include "tests/integration/malformed/plain_headers.h"
#include "tests/integration/malformed/requests.h"

namespace attnd::testing {
namespace {

// A table of size 0: what comes back then needs none to be read.
constexpr uint16_t kHeaderTableSize = 1;

uint32_t Number(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = at; i < at + 4 && i < bytes.size(); ++i) {
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return value;
}

// What came on one connection.
class Answers {
 public:
  explicit Answers(int fd) : fd_(fd) {}

  // Reads until `done` of what came so far, or there is no more to come.
  template <typename Done>
  void ReadUntil(Done done) {
    while (!done() && !closed_ && !timed_out_) Read();
  }

  // What comes from here on is told as if no stream had ended before.
  void StartOver() { ends_.clear(); }

  bool closed() const { return closed_; }
  bool timed_out() const { return timed_out_; }
  bool Ended(uint32_t stream) const { return ends_.contains(stream); }
  // Of a stream that has ended.
  const Outcome& End(uint32_t stream) const { return ends_.at(stream); }
  // The first RST_STREAM that ended a stream, but for the probe's.
  const std::optional<Outcome>& first_reset() const { return reset_; }
  std::optional<uint32_t> error() const { return error_; }

 private:
  void Read() {
    const std::optional<ReceivedFrame> frame = ReceiveFrame(fd_);
    if (!frame.has_value()) {
      timed_out_ = errno == EAGAIN || errno == EWOULDBLOCK;
      closed_ = !timed_out_;
      return;
    }
    const bool end = (frame->flags & kEndStream) != 0;
    if (frame->type == kGoAway && Number(frame->payload, 4) != 0) {
      error_ = Number(frame->payload, 4);
    } else if (frame->type == kReset) {
      const Outcome reset = StreamError(ErrorCode{Number(frame->payload, 0)});
      const bool first = ends_.emplace(frame->stream, reset).second;
      if (first && frame->stream != kProbeStream && !reset_) reset_ = reset;
    } else if (frame->type == kHeaders) {
      headers_[frame->stream] += frame->payload;
      if (end) ends_.emplace(frame->stream, Answer(headers_[frame->stream]));
    } else if (frame->type == kData && end) {
      ends_.emplace(frame->stream, Answer(headers_[frame->stream]));
    }
  }

  static Outcome Answer(const std::string& block) {
    const auto headers = ReadPlainHeaders(block);
    if (!headers.has_value()) {
      return {Outcome::kUnexpected, 0, "an answer whose headers are packed"};
    }
    if (const auto status = headers->find("grpc-status");
        status != headers->end()) {
      return Status(std::atoi(status->second.c_str()));
    }
    const auto status = headers->find(":status");
    return Http(status == headers->end() ? 0
                                         : std::atoi(status->second.c_str()));
  }

  const int fd_;
  bool closed_ = false;
  bool timed_out_ = false;
  std::optional<uint32_t> error_;
  std::optional<Outcome> reset_;
  std::map<uint32_t, std::string> headers_;
  std::map<uint32_t, Outcome> ends_;
};

// Whether stream 1 must end, one way or another, unless the connection does.
bool AwaitsStream(const MalformedCase& c) {
  if (!c.before.empty()) return false;
  if (c.differs.has_value()) return c.differs->OfStream();
  const auto is_ignored = [](const Outcome& o) { return o == Ignored(); };
  const auto of_stream = [](const Outcome& o) { return o.OfStream(); };
  return std::none_of(c.expected.begin(), c.expected.end(), is_ignored) &&
         std::any_of(c.expected.begin(), c.expected.end(), of_stream);
}

Outcome Judge(const MalformedCase& c, const Answers& answers) {
  if (answers.timed_out()) {
    return {Outcome::kUnexpected, 0,
            answers.error().has_value() ? "GOAWAY, and the connection lives"
            : answers.Ended(kProbeStream)
                ? "no end of stream 1, though the next call was served"
                : "no answer within the time limit"};
  }
  if (answers.closed()) {
    if (!answers.error().has_value()) return Closed();
    return ConnectionError(ErrorCode{*answers.error()});
  }
  if (c.then == Then::kCall && answers.End(kProbeStream) != Status(0)) {
    return {
        Outcome::kUnexpected, 0,
        absl::StrCat("the next call: ", answers.End(kProbeStream).ToString())};
  }
  if (AwaitsStream(c)) return answers.End(1);
  return answers.first_reset().value_or(Ignored());
}

}  // namespace

Outcome OutcomeOf(const MalformedCase& c, const std::string& address) {
  const int fd = ConnectedSocket(address);
  if (!c.raw) StartHttp2(fd, Setting(kHeaderTableSize, 0));
  Answers answers(fd);
  if (!c.before.empty()) {
    SendBytes(fd, c.before);
    answers.ReadUntil([&] { return answers.Ended(1); });
    answers.StartOver();
  }
  SendBytes(fd, c.bytes);
  if (c.then == Then::kCall) SendBytes(fd, GoodCall(kProbeStream));
  if (c.then == Then::kFinish) shutdown(fd, SHUT_WR);
  const bool awaits_stream = AwaitsStream(c);
  answers.ReadUntil([&] {
    if (answers.error().has_value() || c.then == Then::kFinish) return false;
    if (c.then == Then::kCall && !answers.Ended(kProbeStream)) return false;
    return awaits_stream ? answers.Ended(1) : c.then == Then::kCall;
  });
  close(fd);
  return Judge(c, answers);
}

std::string Mismatch(const MalformedCase& c, const Outcome& outcome) {
  const bool expected = std::find(c.expected.begin(), c.expected.end(),
                                  outcome) != c.expected.end();
  if (c.differs.has_value()) {
    if (outcome == *c.differs) return "";
    return absl::StrCat(outcome.ToString(), expected ? " as expected" : "",
                        ", where ", c.differs->ToString(), " is listed");
  }
  if (expected) return "";
  std::string text = absl::StrCat(outcome.ToString(), ", not");
  for (const Outcome& one : c.expected) {
    absl::StrAppend(&text, " [", one.ToString(), "]");
  }
  return text;
}

void Summary::Add(const MalformedCase& c, const Outcome& outcome) {
  const bool served = outcome == Ignored() || outcome == Status(0);
  if (!c.differs.has_value()) {
    ++(served ? served_as_expected_ : as_expected_);
    return;
  }
  Difference& difference = by_reason_[c.why];
  ++(served ? difference.accepted : difference.refused);
  absl::StrAppend(&difference.cases, "    ", c.name, " (", c.section,
                  "): ", outcome.ToString(), ", not ", c.expected[0].ToString(),
                  "\n");
}

std::string Summary::ToString() const {
  int refused = 0;
  int accepted = 0;
  std::string details;
  for (const auto& [why, difference] : by_reason_) {
    refused += difference.refused;
    accepted += difference.accepted;
    absl::StrAppend(&details, "  ", why, "\n", difference.cases);
  }
  return absl::StrCat(as_expected_, " refused as the RFCs say, ",
                      served_as_expected_, " served as they say, ", refused,
                      " refused otherwise, ", accepted,
                      " served against them:\n", details);
}

}  // namespace attnd::testing
