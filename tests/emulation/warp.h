#ifndef ATTND_TESTS_EMULATION_WARP_H_
#define ATTND_TESTS_EMULATION_WARP_H_

// Instructions that all lanes of a warp make together.

#include <array>
#include <cstdint>

#include "tests/emulation/block.h"

namespace attnd::emulation {

// Waits for the other lanes. The last one to come calls run(arguments), those
// of lanes 0 to 31. Fails the launch where they meet for different things.
void Meet(const char* instruction, void* argument,
          void (*run)(void* const* arguments));

// The same with arguments of a type; `run` is a lambda that captures nothing.
template <class Argument, class Run>
void Together(const char* instruction, Argument& argument, Run) {
  Meet(instruction, &argument, [](void* const* arguments) {
    std::array<Argument*, kLanes> lanes;
    for (unsigned i = 0; i < kLanes; ++i) {
      lanes[i] = static_cast<Argument*>(arguments[i]);
    }
    Run{}(lanes);
  });
}

void SyncWarp(const char* instruction = "__syncwarp");

// Bit i is lane i's `predicate`.
uint32_t Ballot(bool predicate);

// `value` of another lane.
template <class T>
T Shuffle(const char* instruction, T value, uint32_t from_lane) {
  struct Lane {
    T value, got;
    uint32_t from;
  } lane{value, value, from_lane % kLanes};
  Together(instruction, lane, [](const auto& lanes) {
    for (Lane* to : lanes) to->got = lanes[to->from]->value;
  });
  return lane.got;
}

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_WARP_H_
