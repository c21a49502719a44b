#ifndef ATTND_TESTS_EMULATION_FIBER_H_
#define ATTND_TESTS_EMULATION_FIBER_H_

// Stacks that take turns on one thread of the host: a thread of the device is
// one of them. Thousands of them switch millions of times a second.

#include <cstddef>

namespace attnd::emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume calls entry(argument), which must not return: at its end it
  // suspends itself for good. Whatever the fiber was about is forgotten, and
  // nothing on its stack is destroyed.
  void Start(void (*entry)(void*), void* argument);

  // Runs the fiber until it suspends itself. Not from within a fiber.
  void Resume();

  // Goes back to who has resumed the fiber that runs.
  static void Suspend();
  // Whether one does.
  static bool IsRunning();

 private:
  struct Context;
  static void Enter();

  std::byte* stack_;  // the lowest page of it is not to be touched
  Context* context_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace attnd::emulation

#endif  // ATTND_TESTS_EMULATION_FIBER_H_
