#ifndef ATTND_TESTS_EMULATION_FLUSH_H_
#define ATTND_TESTS_EMULATION_FLUSH_H_

#include <cmath>

namespace attnd::emulation {

// What .ftz makes of a subnormal number, before an instruction and after it.
inline float Flushed(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}

// What adds f32 in memory, by an instruction or the copy engine, does so.
inline void AddFlushed(float& sum, float x) {
  sum = Flushed(Flushed(sum) + Flushed(x));
}

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_FLUSH_H_
