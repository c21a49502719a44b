#include "tests/server/fuzz/inspector_check.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/http2/inspector.h"
#include "tests/server/fuzz/inspector_model.h"
#include "tests/server/fuzz/inspector_script.h"

namespace attnd::server::http2::testing {
namespace {

Bytes BytesOf(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Shows the bytes of an event to an inspector, at once or in pieces.
class Viewer {
 public:
  // `seed` 0: at once.
  Viewer(const InspectorOptions& options, uint32_t seed)
      : inspector_(options), seed_(seed) {}

  const std::optional<Violation>& Show(const Event& event) {
    absl::string_view left = event.bytes;
    do {
      const absl::string_view piece = left.substr(0, PieceBytes(left.size()));
      left.remove_prefix(piece.size());
      if (event.is_server) {
        inspector_.Sent(BytesOf(piece), event.at);
      } else {
        said_ = inspector_.Received(BytesOf(piece), event.at);
      }
    } while (!left.empty());
    return said_;
  }
  const Inspector& inspector() const { return inspector_; }

 private:
  size_t PieceBytes(size_t most) {
    if (seed_ == 0) return most;
    seed_ = seed_ * 1664525 + 1013904223;
    return std::min<size_t>(most, 1 + (seed_ >> 16) % 24);
  }

  Inspector inspector_;
  uint32_t seed_;
  std::optional<Violation> said_;
};

bool SaysSame(const std::optional<Violation>& a,
              const std::optional<Violation>& b) {
  if (a.has_value() != b.has_value()) return false;
  return !a.has_value() || (a->code == b->code && a->what == b->what);
}

std::string Text(const std::optional<Violation>& said) {
  return said.has_value() ? std::string(said->what) : "nothing";
}

bool IsLate(const std::optional<Violation>& said) {
  return said.has_value() && said->code == ErrorCode::kSettingsTimeout;
}

absl::Status CheckSame(const Inspector& whole, const Inspector& pieces) {
  if (whole.received_bytes() != pieces.received_bytes() ||
      whole.received_frames() != pieces.received_frames() ||
      whole.last_stream() != pieces.last_stream() ||
      whole.is_between_sent_frames() != pieces.is_between_sent_frames()) {
    return absl::InternalError("pieces are counted otherwise");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInspector(absl::string_view input, bool* violated) {
  // Reused, as memory is what costs most here.
  static Script& script = *new Script;
  static InspectorModel& model = *new InspectorModel;
  ReadScript(input, script);
  model.Start(script.options);
  Viewer whole(script.options, 0), pieces(script.options, script.seed | 1);
  std::optional<Violation> told;
  int64_t received = 0;
  bool is_compared = true;
  for (const Event& event : script.events) {
    const std::optional<Violation> said = whole.Show(event);
    const std::optional<Violation> other = pieces.Show(event);
    if (!event.is_server) received += std::ssize(event.bytes);
    if (told.has_value() && !SaysSame(said, told)) {
      return absl::InternalError(
          absl::StrCat("said ", Text(told), ", then ", Text(said)));
    }
    told = said;
    if (whole.inspector().received_bytes() != received) {
      return absl::InternalError("bytes are not counted right");
    }
    // An acknowledgement that comes too late may be in a later piece.
    is_compared = is_compared && !IsLate(said) && !IsLate(other);
    if (is_compared) {
      if (!SaysSame(said, other)) {
        return absl::InternalError(
            absl::StrCat("says ", Text(said), "; of pieces ", Text(other)));
      }
      auto status = CheckSame(whole.inspector(), pieces.inspector());
      if (!status.ok()) return status;
    }
    if (told.has_value()) continue;
    if (auto status = model.Take(event); !status.ok()) return status;
    if (model.frames() != whole.inspector().received_frames()) {
      return absl::InternalError("frames are not counted right");
    }
  }
  if (violated != nullptr) *violated = told.has_value();
  return absl::OkStatus();
}

}  // namespace attnd::server::http2::testing
