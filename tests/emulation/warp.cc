#include "tests/emulation/warp.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/emulation/scheduler.h"

namespace attnd::emulation {

void Meet(const char* instruction, void* argument,
          void (*run)(void* const* arguments)) {
  Thread& self = Self();
  Meeting& meeting = self.warp->meeting;
  if (self.warp->threads.size() < kLanes) Fail("a warp that is not full");
  if (meeting.arrived == 0) {
    meeting.instruction = instruction;
  } else if (meeting.instruction != instruction &&
             std::strcmp(meeting.instruction, instruction) != 0) {
    Fail(absl::StrCat("the warp has diverged: ", instruction,
                      ", where other lanes have come to ",
                      meeting.instruction));
  }
  meeting.arguments[self.index % kLanes] = argument;
  Progress();
  if (++meeting.arrived == kLanes) {
    meeting.arrived = 0;
    ++meeting.number;
    run(meeting.arguments);
    return;
  }
  const uint64_t number = meeting.number;
  WaitUntil(instruction, 0, [&] { return meeting.number != number; });
}

void SyncWarp(const char* instruction) {
  Meet(instruction, nullptr, [](void* const*) {});
}

uint32_t Ballot(bool predicate) {
  struct Lane {
    bool predicate;
    uint32_t got;
  } lane{predicate, 0};
  Together("vote", lane, [](const auto& lanes) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < kLanes; ++i) {
      bits |= static_cast<uint32_t>(lanes[i]->predicate) << i;
    }
    for (Lane* to : lanes) to->got = bits;
  });
  return lane.got;
}

}  // namespace attnd::emulation
