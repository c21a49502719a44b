#ifndef ATTND_KERNELS_PLAN_KIND_H_
#define ATTND_KERNELS_PLAN_KIND_H_

// How a request is shared out over several devices. plan/README.md describes
// them.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnd {

enum class PlanKind : uint8_t {
  kAuto,       // what suits the request; never in a report
  kOneDevice,  // any one of them
  kHeads,      // K/V heads of sequences, each with all of its tokens
  kGather,     // tokens of every sequence; devices fetch what they lack
  // Tokens of every sequence, whose columns go round from device to device:
  kRing,     // tokens in a row each
  kStriped,  // every N-th token of N devices
  kZigzag,   // a part from the front, and one as far from the back
  kKv,       // columns of every sequence, each with all of its rows
};

// Whether columns go round.
constexpr bool GoesRound(PlanKind kind) {
  return kind == PlanKind::kRing || kind == PlanKind::kStriped ||
         kind == PlanKind::kZigzag;
}

// Whether devices have tokens of every sequence, and not heads of some.
constexpr bool SharesTokens(PlanKind kind) {
  return kind == PlanKind::kGather || kind == PlanKind::kKv || GoesRound(kind);
}

// "auto", "one_device", "heads", "gather", "ring", "striped", "zigzag", "kv".
absl::string_view PlanName(PlanKind kind);

// What kAuto is for a request.
struct PlanChoice {
  PlanKind kind = PlanKind::kHeads;
  std::string why;  // for people
};

// What a request ran as that several devices shared.
struct PlanReport {
  struct Device {
    std::string name;     // e.g. "cuda:1"
    absl::Duration busy;  // its kernels' time
  };

  PlanKind kind = PlanKind::kOneDevice;
  std::string why;  // this kind, and none of the others
  std::vector<Device> devices;
  absl::Duration predicted;  // from the first kernel's start to the last's end
};

}  // namespace attnd

#endif  // ATTND_KERNELS_PLAN_KIND_H_
