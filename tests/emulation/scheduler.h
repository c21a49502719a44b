#ifndef ATTND_TESTS_EMULATION_SCHEDULER_H_
#define ATTND_TESTS_EMULATION_SCHEDULER_H_

// What an emulated instruction needs of the device that it runs on.

#include <cstdint>
#include <functional>
#include <string>

#include "tests/emulation/block.h"

namespace attnd::emulation {

// The thread that runs.
Thread& Self();

// Uniform in [0, n), drawn from the launch's seed.
uint32_t Random(uint32_t n);

// Something has happened that someone may wait for. Where nothing more does,
// the launch has come to a deadlock.
void Progress();

// Suspends the thread until over(), which must stay true until it goes on.
template <class Over>
void WaitUntil(const char* what, uint32_t where, const Over& over);

// The thread lets others run; it does so in a loop, and may do so for ever.
void Poll(const char* what);
// The same where it goes on in any case, now and then.
void MaybeYield();

// The launch fails with this message and where the thread is. The thread does
// not go on.
[[noreturn]] void Fail(std::string message);
// The same from anywhere; what called it goes on, for a while.
void Report(std::string message);

// Has a copy made some time from now, or at the latest when nothing else goes
// on. Its block must not end before.
void Later(const Block& block, std::function<void()> copy);

// Implementation.

void Suspend(const Wait& wait);

template <class Over>
void WaitUntil(const char* what, uint32_t where, const Over& over) {
  if (!over()) {
    Suspend(
        {what, where,
         [](const void* state) { return (*static_cast<const Over*>(state))(); },
         &over});
  }
  Progress();
}

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_SCHEDULER_H_
