#include "tests/server/fuzz/inspector_script.h"

#include <algorithm>
#include <array>

#include "tests/server/fuzz/header_list_check.h"

namespace attnd::server::http2::testing {
namespace {

enum Step : uint8_t {
  kAnyFrame,       // of the client: type, flags, stream and payload as they are
  kRequest,        // HEADERS of the next stream, with `size` bytes as its block
  kMoreHeaders,    // CONTINUATION
  kMessage,        // DATA
  kControl,        // a frame of the right size for its type
  kAgain,          // the client's last frame, up to 63 times
  kRaw,            // bytes that are no frame
  kServerFrame,    // as kAnyFrame, of the server
  kServerControl,  // what gRPC sends: SETTINGS, RST_STREAM, PING, ...
  kServerAnswer,   // HEADERS that end a stream
  kTime,           // passes
  kCut,            // the client's bytes come in two events
  kSteps,
};

constexpr size_t kStepBytes = 4;
constexpr size_t kStartBytes = 2;
// Whether `size` bytes come after a step.
constexpr bool HasPayload(uint8_t step) {
  return step <= kMessage || step == kRaw || step == kServerFrame;
}

void AppendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                 absl::string_view payload, std::string& to) {
  const std::array<char, kFrameHeaderBytes> head = {
      static_cast<char>(payload.size() >> 16),
      static_cast<char>(payload.size() >> 8),
      static_cast<char>(payload.size()),
      static_cast<char>(type),
      static_cast<char>(flags),
      static_cast<char>(stream >> 24),
      static_cast<char>(stream >> 16),
      static_cast<char>(stream >> 8),
      static_cast<char>(stream)};
  to.append(head.data(), head.size());
  to.append(payload.data(), payload.size());
}

// A payload of the length that each type has, of `value`.
void AppendControl(uint8_t type, uint8_t flags, uint32_t stream, uint8_t value,
                   std::string& to) {
  constexpr uint8_t kTypes[] = {kPriority, kRstStream, kSettings,
                                kPing,     kGoAway,    kWindowUpdate};
  constexpr size_t kSizes[] = {5, 4, 6, 8, 8, 4};
  const size_t at = type % std::size(kTypes);
  std::array<char, 8> payload{};
  size_t size = kSizes[at];
  if (kTypes[at] == kSettings && (flags & kAck) != 0) size = 0;
  if (size > 0) payload[size - 1] = static_cast<char>(value);
  if (kTypes[at] == kSettings) payload[1] = static_cast<char>(value % 8);
  const bool is_of_connection =
      kTypes[at] == kSettings || kTypes[at] == kPing || kTypes[at] == kGoAway;
  AppendFrame(kTypes[at], flags, is_of_connection ? 0 : stream,
              {payload.data(), size}, to);
}

class Reader {
 public:
  explicit Reader(Script& script) : script_(script) {}

  void Start(uint8_t options, uint8_t greeting) {
    script_.options.max_streams = (options & 1) != 0 ? 3 : 1024;
    script_.options.max_header_list_bytes = (options & 2) != 0 ? 100 : 16 << 10;
    script_.options.max_frame_bytes = (options & 4) != 0 ? 64 : 2 << 20;
    script_.options.settings_time = absl::Seconds(10);
    script_.seed = options;
    used_ = 0;
    if ((greeting & 1) != 0) return;
    At(false).append(kPreface.data(), kPreface.size());
    if ((greeting & 2) != 0) return;
    AppendFrame(kSettings, 0, 0, "", At(false));
    if ((greeting & 4) != 0) return;
    AppendFrame(kSettings, 0, 0, "", At(true));
    if ((greeting & 8) != 0) return;
    AppendFrame(kSettings, kAck, 0, "", At(false));
  }

  void Take(Step step, uint8_t flags, uint8_t stream, uint8_t size,
            absl::string_view payload);

  void End() { script_.events.resize(used_); }

 private:
  // Where an end's next bytes go.
  std::string& At(bool is_server) {
    if (used_ == 0 || script_.events[used_ - 1].is_server != is_server ||
        is_cut_) {
      if (script_.events.size() <= used_) script_.events.emplace_back();
      Event& fresh = script_.events[used_++];
      fresh.is_server = is_server;
      fresh.at = now_;
      fresh.bytes.clear();
      is_cut_ = false;
    }
    return script_.events[used_ - 1].bytes;
  }
  void FromClient(uint8_t type, uint8_t flags, uint32_t stream,
                  absl::string_view payload) {
    std::string& to = At(false);
    const size_t begin = to.size();
    AppendFrame(type, flags, stream, payload, to);
    last_.assign(to, begin);
  }

  Script& script_;
  size_t used_ = 0;  // of the script's events
  bool is_cut_ = false;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  uint32_t opened_ = 0;
  std::string last_;  // the client's last frame
};

void Reader::Take(Step step, uint8_t flags, uint8_t stream, uint8_t size,
                  absl::string_view payload) {
  switch (step) {
    case kAnyFrame:
      return FromClient(stream / 16 % 12, flags, stream % 16, payload);
    case kRequest:
      opened_ = opened_ == 0 ? 1 : opened_ + 2;
      return FromClient(kHeaders, flags, opened_, payload);
    case kMoreHeaders:
      return FromClient(kContinuation, flags, stream == 0 ? opened_ : stream,
                        payload);
    case kMessage:
      return FromClient(kData, flags, stream == 0 ? opened_ : stream, payload);
    case kControl: {
      std::string& to = At(false);
      const size_t begin = to.size();
      AppendControl(size, flags, stream == 0 ? opened_ : stream, stream, to);
      last_.assign(to, begin);
      return;
    }
    case kAgain:
      for (int i = size % 64; i > 0; --i) {
        if (At(false).size() > kMostScriptBytes) break;
        At(false) += last_;
      }
      return;
    case kRaw:
      At(false).append(payload.data(), payload.size());
      return;
    case kServerFrame:
      return AppendFrame(stream / 16 % 12, flags, stream % 16, payload,
                         At(true));
    case kServerControl:
      return AppendControl(size, flags, stream == 0 ? opened_ : stream, flags,
                           At(true));
    case kServerAnswer:
      return AppendFrame(kHeaders, kEndStream | kEndHeaders,
                         stream == 0 ? opened_ : stream, "", At(true));
    case kTime:
      now_ += absl::Milliseconds(int64_t{size} * (flags % 2 == 0 ? 1 : 100));
      is_cut_ = true;
      return;
    default:
      is_cut_ = true;
  }
}

std::string RandomStep(std::minstd_rand& random) {
  // A third of them are requests, without which most steps mean nothing.
  const auto kind = random() % 3 == 0 ? static_cast<uint8_t>(kRequest)
                                      : static_cast<uint8_t>(random() % kSteps);
  std::string payload;
  if (kind == kRequest || kind == kMoreHeaders) {
    for (int fields = random() % 3; fields > 0; --fields) {
      payload += RandomField(random);
    }
  } else if (HasPayload(kind)) {
    for (int bytes = random() % 12; bytes > 0; --bytes) {
      payload.push_back(static_cast<char>(random()));
    }
  }
  if (payload.size() > 60) payload.resize(60);
  const uint8_t flags = kind == kRequest && random() % 4 != 0
                            ? kEndHeaders | (random() % 2)
                            : random() % 64;
  const bool names_type = kind == kAnyFrame || kind == kServerFrame;
  const uint8_t stream = random() % 2 == 0 ? 0
                         : names_type      ? random() % 256
                                           : random() % 10;
  const uint8_t size = HasPayload(kind) ? static_cast<uint8_t>(payload.size())
                                        : static_cast<uint8_t>(random());
  std::string step = {static_cast<char>(kind), static_cast<char>(flags),
                      static_cast<char>(stream), static_cast<char>(size)};
  return step + payload;
}

// The next step of `input`, which loses it; the last may lack bytes.
absl::string_view TakeStep(absl::string_view& input) {
  size_t size = std::min(input.size(), kStepBytes);
  if (size == kStepBytes &&
      HasPayload(static_cast<uint8_t>(input[0]) % kSteps)) {
    size = std::min(input.size(), kStepBytes + (input[3] & 63));
  }
  const absl::string_view step = input.substr(0, size);
  input.remove_prefix(size);
  return step;
}

}  // namespace

void ReadScript(absl::string_view input, Script& script) {
  Reader reader(script);
  if (input.size() < kStartBytes) input = absl::string_view("\0\0", 2);
  reader.Start(static_cast<uint8_t>(input[0]), static_cast<uint8_t>(input[1]));
  input.remove_prefix(kStartBytes);
  while (!input.empty()) {
    const absl::string_view step = TakeStep(input);
    if (step.size() < kStepBytes) break;
    const auto byte = [step](int at) { return static_cast<uint8_t>(step[at]); };
    reader.Take(static_cast<Step>(byte(0) % kSteps), byte(1), byte(2), byte(3),
                step.substr(kStepBytes));
  }
  reader.End();
}

std::string FreshScript(std::minstd_rand& random) {
  // All of the greeting, all but the last acknowledgement, or any part of it.
  const uint8_t greetings[] = {0, 0, 8, static_cast<uint8_t>(random())};
  std::string input = {static_cast<char>(random()),
                       static_cast<char>(greetings[random() % 4])};
  for (int steps = random() % 16; steps >= 0; --steps) {
    input += RandomStep(random);
  }
  return input;
}

std::string MutateScript(std::minstd_rand& random, absl::string_view input) {
  if (input.size() < kStartBytes) return FreshScript(random);
  std::string mutated(input.substr(0, kStartBytes));
  input.remove_prefix(kStartBytes);
  std::vector<std::string> steps;
  while (!input.empty()) steps.emplace_back(TakeStep(input));
  const size_t at = random() % (steps.size() + 1);
  switch (random() % 6) {
    case 0:
    case 1:
      steps.insert(steps.begin() + at, RandomStep(random));
      break;
    case 2:
      if (at < steps.size()) steps.insert(steps.begin() + at, steps[at]);
      break;
    case 3:
      if (at < steps.size()) steps.erase(steps.begin() + at);
      break;
    case 4:
      if (at < steps.size()) {
        steps[at][random() % steps[at].size()] = static_cast<char>(random());
      }
      break;
    default:
      if (at < steps.size()) std::swap(steps[at], steps.front());
  }
  for (const std::string& step : steps) mutated += step;
  return mutated;
}

}  // namespace attnd::server::http2::testing
