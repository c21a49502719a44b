#include "tests/server/fuzz/inspector_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace attnd::server::http2::testing {
namespace {

// What inspector.cc allows at once and a second.
constexpr double kSettingsAtOnce = 50, kSettingsPerSecond = 10;
constexpr double kPingsAtOnce = 200, kPingsPerSecond = 50;
constexpr size_t kMostUnacknowledged = 500;
// Of a block, small ones; and of large ones as many as it has bytes for.
constexpr double kBlockFramesAtOnce = 400, kBlockFramesPerSecond = 100;
constexpr double kLargeBlockFrames = 100;

absl::Status Passed(absl::string_view what) {
  return absl::InternalError(absl::StrCat("passed: ", what));
}

}  // namespace

void InspectorModel::Start(const InspectorOptions& options) {
  options_ = options;
  start_ = absl::InfiniteFuture();
  preface_ = 0;
  for (End* end : {&client_, &server_}) {
    end->bytes.clear();
    end->has_begun = false;
    end->frames = 0;
  }
  last_ = block_ = 0;
  open_.clear();
  owed_ = block_frames_ = settings_ = pings_ = earned_ = 0;
}

absl::Status InspectorModel::Take(const Event& event) {
  now_ = event.at;
  start_ = std::min(start_, now_);
  absl::string_view bytes = event.bytes;
  if (event.is_server) {
    return Split(
        server_, bytes,
        [this](const Frame& frame) {
          ServerBegins(frame);
          return absl::OkStatus();
        },
        [this](const Frame& frame, absl::string_view) {
          ServerSent(frame);
          return absl::OkStatus();
        });
  }
  const absl::string_view preface = kPreface.substr(preface_, bytes.size());
  if (bytes.substr(0, preface.size()) != preface) return Passed("no preface");
  preface_ += preface.size();
  bytes.remove_prefix(preface.size());
  return Split(
      client_, bytes,
      [this](const Frame& frame) { return ClientBegins(frame); },
      [this](const Frame& frame, absl::string_view payload) {
        return ClientSent(frame, payload);
      });
}

template <typename Begin, typename Whole>
absl::Status InspectorModel::Split(End& end, absl::string_view bytes,
                                   Begin begin, Whole whole) {
  end.bytes.append(bytes.data(), bytes.size());
  absl::string_view left = end.bytes;
  while (left.size() >= kFrameHeaderBytes) {
    const Frame frame = ParseFrame(
        {reinterpret_cast<const uint8_t*>(left.data()), kFrameHeaderBytes});
    if (!end.has_begun) {
      ++end.frames;
      if (auto status = begin(frame); !status.ok()) return status;
    }
    const size_t size = kFrameHeaderBytes + frame.length;
    end.has_begun = left.size() < size;
    if (end.has_begun) break;
    auto status = whole(frame, left.substr(kFrameHeaderBytes, frame.length));
    if (!status.ok()) return status;
    left.remove_prefix(size);
  }
  end.bytes.erase(0, end.bytes.size() - left.size());
  return absl::OkStatus();
}

absl::Status InspectorModel::ClientBegins(const Frame& frame) {
  if (client_.frames == 1 && (frame.type != kSettings || frame.has(kAck))) {
    return Passed("no SETTINGS at first");
  }
  if (frame.length > options_.max_frame_bytes) return Passed("a long frame");
  if (block_ != 0 && (frame.type != kContinuation || frame.stream != block_)) {
    return Passed("headers that are interrupted");
  }
  const bool is_known = frame.stream <= last_;
  const auto at = open_.find(frame.stream);
  const bool is_ended = at != open_.end() && at->second;
  switch (frame.type) {
    case kHeaders:
      if (frame.stream % 2 == 0) return Passed("an even stream");
      if (is_ended) return Passed("HEADERS after the end");
      if (!is_known) {
        const size_t most =
            std::min<size_t>(options_.max_streams, kMostUnacknowledged);
        if (!has_acknowledged_ && owed_ > 0 && open_.size() >= most) {
          return Passed("many streams");
        }
        last_ = frame.stream;
        open_[last_] = false;
      }
      block_ = frame.stream;
      block_frames_ = 1;
      break;
    case kContinuation:
      if (block_ == 0) return Passed("CONTINUATION of nothing");
      ++block_frames_;
      if (static_cast<double>(block_frames_) >
          kBlockFramesAtOnce + kBlockFramesPerSecond * Seconds() +
              kLargeBlockFrames) {
        return Passed("headers without end");
      }
      break;
    case kData:
      if (!is_known || frame.stream == 0) return Passed("DATA of no stream");
      if (is_ended) return Passed("DATA after the end");
      break;
    case kRstStream:
      // A client may give up a stream before its headers have left.
      if (!is_known && frame.stream % 2 == 0) {
        return Passed("RST_STREAM of no stream");
      }
      if (frame.stream == 0 || frame.length != 4) {
        return Passed("a wrong RST_STREAM");
      }
      open_.erase(frame.stream);
      break;
    case kSettings:
      if (frame.stream != 0 || frame.length % 6 != 0) {
        return Passed("wrong SETTINGS");
      }
      if (frame.has(kAck)) {
        --owed_;
        has_acknowledged_ = true;
      } else if (++settings_ >
                 kSettingsAtOnce + kSettingsPerSecond * Seconds() + 1) {
        return Passed("a flood of SETTINGS");
      }
      break;
    case kPing:
      if (frame.stream != 0 || frame.length != 8) return Passed("a wrong PING");
      if (!frame.has(kAck) && ++pings_ > kPingsAtOnce +
                                             kPingsPerSecond * Seconds() +
                                             static_cast<double>(earned_) + 1) {
        return Passed("a flood of PING");
      }
      break;
    case kPushPromise:
      return Passed("PUSH_PROMISE");
    default:
      break;
  }
  return absl::OkStatus();
}

absl::Status InspectorModel::ClientSent(const Frame& frame,
                                        absl::string_view payload) {
  if (frame.type == kHeaders || frame.type == kContinuation) {
    if (frame.has(kEndHeaders)) block_ = 0;
  }
  if ((frame.type == kHeaders || frame.type == kData) &&
      frame.has(kEndStream)) {
    const auto at = open_.find(frame.stream);
    if (at != open_.end()) at->second = true;
  }
  if (frame.type == kWindowUpdate) {
    const bool opens = std::any_of(payload.begin() + 1, payload.end(),
                                   [](char c) { return c != 0; }) ||
                       (payload[0] & 0x7f) != 0;
    if (!opens) return Passed("a window of nothing");
  }
  return absl::OkStatus();
}

void InspectorModel::ServerBegins(const Frame& frame) {
  if (frame.type == kSettings && !frame.has(kAck)) ++owed_;
  if (frame.type == kHeaders || frame.type == kData) {
    ++earned_;
    if (frame.has(kEndStream)) open_.erase(frame.stream);
  }
}

void InspectorModel::ServerSent(const Frame& frame) {
  if (frame.type == kRstStream) open_.erase(frame.stream);
}

double InspectorModel::Seconds() const {
  return absl::ToDoubleSeconds(now_ - start_);
}

}  // namespace attnd::server::http2::testing
