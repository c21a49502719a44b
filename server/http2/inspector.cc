#include "server/http2/inspector.h"

#include <algorithm>

#include "server/http2/frame_rules.h"

namespace attnd::server::http2 {
namespace {

// A stream that is younger was never meant to be answered. Of older ones no
// more can come than gRPC's limit of streams lets be open.
constexpr absl::Duration kYoung = absl::Seconds(1);
// DATA that carries less says nothing: the prefix of a message has five bytes.
constexpr uint32_t kEmptyData = 5;
// Clients cut headers into frames that are as large as may be, the last aside.
constexpr uint32_t kSmallContinuation = 1 << 10;
// gRPC keeps what a GOAWAY says, and takes a setting at a time.
constexpr uint32_t kMostGoAway = 4 << 10;
constexpr uint32_t kMostSettings = 1 << 10;

// What no client comes near, at once and a second, and what a flood has used up
// before its thousandth frame. Clients that measure the link send a PING for
// what they receive, and all send WINDOW_UPDATE for it and for each call that
// they begin: those they earn. Where deadlines pass, both ends end calls by the
// thousand, so clients earn resets by calls that the server has ended, and by
// DATA: calls whose deadlines passed while others were sent are young when they
// come. What is earned may be saved, as a client that had no processor for a
// while does all that it owes at once.
constexpr Budget kResets(400, 100, 2000);
constexpr Budget kLateResets(400, 100, 2000);
constexpr Budget kSettingsFrames(50, 10);
constexpr Budget kPings(200, 50);
constexpr Budget kWindowUpdates(800, 200, 8000);
constexpr Budget kEmptyDataFrames(800, 200);
constexpr Budget kOthers(400, 100);
constexpr double kUpdatesPerCall = 2;
constexpr double kUpdatesPerFrame = 2;
constexpr double kBytesPerUpdate = 256;
constexpr double kBytesPerReset = 64 << 10;

// Streams before the server's SETTINGS are acknowledged: clients of gRPC wait
// for these before their first call.
size_t MostUnacknowledged(const InspectorOptions& options) {
  return static_cast<size_t>(std::min(options.max_streams, 500));
}

Violation Flood(absl::string_view what) {
  return {ErrorCode::kEnhanceYourCalm, what};
}
Violation Protocol(absl::string_view what) {
  return {ErrorCode::kProtocolError, what};
}

}  // namespace

class Inspector::FromPeer {
 public:
  explicit FromPeer(Inspector& inspector) : inspector_(inspector) {}
  bool OnFrame(const Frame& frame) { return Goes(inspector_.Begin(frame)); }
  bool OnPayload(const Frame& frame, Bytes payload) {
    return Goes(inspector_.Payload(frame, payload));
  }
  bool OnFrameEnd(const Frame& frame) { return Goes(inspector_.End(frame)); }

 private:
  bool Goes(std::optional<Violation> violation) {
    if (violation.has_value()) inspector_.violation_ = violation;
    return !violation.has_value();
  }
  Inspector& inspector_;
};

class Inspector::FromServer {
 public:
  explicit FromServer(Inspector& inspector) : inspector_(inspector) {}
  bool OnFrame(const Frame& frame) {
    inspector_.BeginSent(frame);
    return true;
  }
  bool OnPayload(const Frame& frame, Bytes payload) {
    if (frame.type == kRstStream) {
      for (const uint8_t byte : payload) {
        inspector_.sent_code_ = inspector_.sent_code_ << 8 | byte;
      }
    }
    return true;
  }
  bool OnFrameEnd(const Frame& frame) {
    inspector_.EndSent(frame);
    return true;
  }

 private:
  Inspector& inspector_;
};

Inspector::Inspector(const InspectorOptions& options)
    : options_(options),
      headers_(static_cast<uint64_t>(options.max_header_list_bytes)),
      resets_(kResets),
      late_resets_(kLateResets),
      settings_(kSettingsFrames),
      pings_(kPings),
      window_updates_(kWindowUpdates),
      empty_data_(kEmptyDataFrames),
      others_(kOthers) {}

std::optional<Violation> Inspector::Received(Bytes bytes, absl::Time now) {
  now_ = now;
  received_bytes_ += static_cast<int64_t>(bytes.size());
  if (violation_.has_value() || !TakePreface(bytes)) return violation_;
  FromPeer visitor(*this);
  if (!received_.Feed(bytes, visitor)) return violation_;
  if (now > owed_until_) {
    violation_ = {ErrorCode::kSettingsTimeout, "SETTINGS not acknowledged"};
  }
  return violation_;
}

void Inspector::Sent(Bytes bytes, absl::Time now) {
  now_ = now;
  FromServer visitor(*this);
  sent_.Feed(bytes, visitor);
}

bool Inspector::TakePreface(Bytes& bytes) {
  while (preface_bytes_ < kPreface.size() && !bytes.empty()) {
    if (bytes[0] != static_cast<uint8_t>(kPreface[preface_bytes_])) {
      violation_ = Protocol("it does not speak HTTP/2");
      return false;
    }
    ++preface_bytes_;
    bytes.remove_prefix(1);
  }
  return true;
}

std::optional<Violation> Inspector::Begin(const Frame& frame) {
  if (received_frames_++ == 0 && (frame.type != kSettings || frame.has(kAck))) {
    return Protocol("SETTINGS do not come first");
  }
  if (auto violation = CheckFrame(frame, options_.max_frame_bytes)) {
    return violation;
  }
  const bool continues = frame.type == kContinuation;
  if (headers_.is_open() != continues ||
      (continues && frame.stream != headers_.stream())) {
    return Protocol("headers are interrupted");
  }
  switch (frame.type) {
    case kHeaders:
      return BeginHeaders(frame);
    case kContinuation:
      if (auto violation = headers_.Begin(frame)) return violation;
      break;
    case kSettings:
      return BeginSettings(frame);
    case kData:
    case kRstStream:
    case kWindowUpdate:
      if (auto violation = CheckStream(frame)) return violation;
      break;
    case kGoAway:
      if (frame.length > kMostGoAway) return Flood("GOAWAY is too long");
      break;
    default:
      break;
  }
  return PayOf(frame);
}

std::optional<Violation> Inspector::CheckStream(const Frame& frame) {
  if (frame.stream == 0) return std::nullopt;
  switch (streams_.StateOf(frame.stream)) {
    case StreamLedger::State::kIdle:
      // gRPC's own clients reset a stream that is given up before its headers
      // have left.
      if (frame.type != kData && frame.stream % 2 == 1) break;
      return Protocol("a frame is on a stream that was never opened");
    case StreamLedger::State::kHalfClosed:
      if (frame.type != kData) break;
      return Violation{ErrorCode::kStreamClosed, "DATA after END_STREAM"};
    case StreamLedger::State::kOpen:
    case StreamLedger::State::kClosed:
      // What was on its way when the server ended a stream still comes.
      break;
  }
  return std::nullopt;
}

std::optional<Violation> Inspector::BeginHeaders(const Frame& frame) {
  if (frame.stream % 2 == 0) return Protocol("a client's stream is even");
  switch (streams_.StateOf(frame.stream)) {
    case StreamLedger::State::kIdle:
      // Once the limit is acknowledged gRPC sees to it.
      if (!has_acknowledged_ &&
          streams_.open() >= MostUnacknowledged(options_)) {
        return Flood("more streams than may be");
      }
      streams_.Open(frame.stream, now_);
      window_updates_.Earn(kUpdatesPerCall);
      return headers_.Begin(frame);
    case StreamLedger::State::kHalfClosed:
      return Violation{ErrorCode::kStreamClosed, "HEADERS after END_STREAM"};
    case StreamLedger::State::kOpen:
      break;
    case StreamLedger::State::kClosed:
      if (!others_.Take(now_)) return Flood("a flood of frames");
      break;
  }
  if (!frame.has(kEndStream)) return Protocol("trailers do not end a stream");
  return headers_.Begin(frame);
}

std::optional<Violation> Inspector::BeginSettings(const Frame& frame) {
  if (!frame.has(kAck)) {
    if (frame.length > kMostSettings) return Flood("SETTINGS are too many");
    if (!settings_.Take(now_)) return Flood("a flood of SETTINGS");
    return std::nullopt;
  }
  if (--owed_ < 0 && !others_.Take(now_)) {
    return Flood("a flood of acknowledgements");
  }
  // A slow peer may have much to send before it acknowledges later ones.
  has_acknowledged_ = true;
  owed_until_ = absl::InfiniteFuture();
  return std::nullopt;
}

std::optional<Violation> Inspector::PayOf(const Frame& frame) {
  switch (frame.type) {
    case kData:
      if (frame.length < kEmptyData && !frame.has(kEndStream) &&
          !empty_data_.Take(now_)) {
        return Flood("a flood of DATA without any");
      }
      resets_.Earn(frame.length / kBytesPerReset);
      break;
    case kRstStream:
      return PayReset(frame.stream);
    case kContinuation:
      if (frame.length < kSmallContinuation && !frame.has(kEndHeaders) &&
          !others_.Take(now_)) {
        return Flood("headers without end");
      }
      break;
    case kPing:
      if (!(frame.has(kAck) ? others_ : pings_).Take(now_)) {
        return Flood("a flood of PING");
      }
      break;
    case kWindowUpdate:
      increment_ = 0;
      if (!streams_.TakeUpdate(frame.stream) && !window_updates_.Take(now_)) {
        return Flood("a flood of WINDOW_UPDATE");
      }
      break;
    default:
      if (!others_.Take(now_)) return Flood("a flood of frames");
      break;
  }
  return std::nullopt;
}

std::optional<Violation> Inspector::PayReset(uint32_t stream) {
  const absl::Duration age = streams_.End(stream, now_);
  // It has ended in the meantime, which the peer could not know.
  Budget& budget = age == absl::InfiniteDuration() ? late_resets_ : resets_;
  if (age < kYoung || age == absl::InfiniteDuration()) {
    if (!budget.Take(now_)) return Flood("a flood of streams that are reset");
  }
  return std::nullopt;
}

std::optional<Violation> Inspector::Payload(const Frame& frame, Bytes payload) {
  if (frame.type == kHeaders || frame.type == kContinuation) {
    headers_.Append(payload);
  } else if (frame.type == kWindowUpdate) {
    for (const uint8_t byte : payload) increment_ = increment_ << 8 | byte;
  } else if (frame.type == kSettings) {
    for (const uint8_t byte : payload) {
      setting_ = setting_ << 8 | byte;
      if (++setting_bytes_ < 6) continue;
      setting_bytes_ = 0;
      const auto id = static_cast<uint16_t>(setting_ >> 32);
      const auto value = static_cast<uint32_t>(setting_);
      if (auto violation = CheckSetting(id, value)) return violation;
    }
  }
  return std::nullopt;
}

std::optional<Violation> Inspector::End(const Frame& frame) {
  if (frame.type == kHeaders || frame.type == kContinuation) {
    if (auto violation = headers_.End(frame)) return violation;
  }
  if (frame.type == kWindowUpdate && (increment_ & 0x7fffffff) == 0) {
    return Protocol("a window is opened by nothing");
  }
  if ((frame.type == kHeaders || frame.type == kData) &&
      frame.has(kEndStream)) {
    streams_.HalfClose(frame.stream);
  }
  return std::nullopt;
}

void Inspector::BeginSent(const Frame& frame) {
  switch (frame.type) {
    case kData:
    case kHeaders:
      pings_.Earn(1);
      window_updates_.Earn(kUpdatesPerFrame + frame.length / kBytesPerUpdate);
      // What the peer has not reset itself.
      if (frame.has(kEndStream) &&
          streams_.End(frame.stream, now_) != absl::InfiniteDuration()) {
        resets_.Earn(1);
        late_resets_.Earn(1);
      }
      break;
    case kSettings:
      if (frame.has(kAck)) break;
      if (!has_sent_settings_ && !has_acknowledged_) {
        owed_until_ = now_ + options_.settings_time;
      }
      has_sent_settings_ = true;
      ++owed_;
      break;
    case kRstStream:
      sent_code_ = 0;
      break;
    default:
      break;
  }
}

// A peer can also have the server reset its streams, by frames that break their
// rules.
void Inspector::EndSent(const Frame& frame) {
  if (frame.type != kRstStream) return;
  const absl::Duration age = streams_.End(frame.stream, now_);
  const bool is_peers_fault =
      sent_code_ != static_cast<uint32_t>(ErrorCode::kNoError) && age < kYoung;
  if (is_peers_fault && !resets_.Take(now_) && !violation_.has_value()) {
    violation_ = Flood("a flood of streams that must be reset");
  }
}

}  // namespace attnd::server::http2
