#include "tests/bench/study/ring/options.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace attnd::bench {
namespace {

// One device alone is there to be compared with.
bool Parse(absl::string_view text, PlanKind& kind) {
  for (const PlanKind known :
       {PlanKind::kOneDevice, PlanKind::kHeads, PlanKind::kGather,
        PlanKind::kRing, PlanKind::kStriped, PlanKind::kZigzag,
        PlanKind::kKv}) {
    if (PlanName(known) != text) continue;
    kind = known;
    return true;
  }
  return false;
}

bool Parse(absl::string_view text, Op& op) {
  op = text == "backward" ? Op::kBackward : Op::kForward;
  return text == OpName(op);
}

bool Parse(absl::string_view text, int& number) {
  return absl::SimpleAtoi(text, &number) && number >= 1;
}

bool Parse(absl::string_view text, bool& value) {
  value = text == "1";
  return text == "0" || value;
}

bool ParseMillis(absl::string_view text, double& seconds) {
  const bool is_number = absl::SimpleAtod(text, &seconds);
  seconds /= 1e3;
  return is_number && seconds >= 0;
}

template <typename T>
bool ParseList(absl::string_view text, std::vector<T>& values) {
  values.clear();
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (T value; Parse(part, value)) {
      values.push_back(value);
    } else {
      return false;
    }
  }
  return true;
}

bool Take(absl::string_view argument, RingStudyOptions& options) {
  if (absl::ConsumePrefix(&argument, "--device=")) {
    options.device = std::string(argument);
    return true;
  }
  if (absl::ConsumePrefix(&argument, "--plans=")) {
    return ParseList(argument, options.plans);
  }
  if (absl::ConsumePrefix(&argument, "--lens=")) {
    return ParseList(argument, options.lens);
  }
  if (absl::ConsumePrefix(&argument, "--ops=")) {
    return ParseList(argument, options.ops);
  }
  if (absl::ConsumePrefix(&argument, "--causal=")) {
    return Parse(argument, options.causal);
  }
  if (absl::ConsumePrefix(&argument, "--settle_ms=")) {
    return ParseMillis(argument, options.settle_seconds);
  }
  if (absl::ConsumePrefix(&argument, "--timed_ms=")) {
    return ParseMillis(argument, options.timed_seconds);
  }
  for (const auto& [name, number] :
       {std::pair<const char*, int*>{"--batch=", &options.batch},
        {"--heads=", &options.heads},
        {"--dim=", &options.dim},
        {"--sections=", &options.sections},
        {"--tflops=", &options.tflops},
        {"--link_gb=", &options.link_gb},
        {"--rounds=", &options.rounds}}) {
    if (absl::ConsumePrefix(&argument, name)) return Parse(argument, *number);
  }
  return false;
}

}  // namespace

absl::StatusOr<RingStudyOptions> ParseRingStudyOptions(int argc, char** argv) {
  RingStudyOptions options;
  if (argc > 1) options.what = argv[1];
  if (options.what != "trace" && options.what != "accuracy" &&
      options.what != "time") {
    return absl::InvalidArgumentError(
        "which of trace, accuracy and time? See the top of ring_study.cc");
  }
  for (int i = 2; i < argc; ++i) {
    if (Take(argv[i], options)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", argv[i], "\" is no flag, or has a value that it cannot have"));
  }
  return options;
}

}  // namespace attnd::bench
