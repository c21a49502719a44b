#include "tests/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#ifndef __x86_64__
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)  // GCC
#define ATTND_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTND_ADDRESS_SANITIZER
#endif
#endif
#ifdef ATTND_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace attnd::emulation {
namespace {

constexpr size_t kGuardBytes = 4096;
// Kernels hold hundreds of registers in arrays; sanitizers surround each.
constexpr size_t kStackBytes = size_t{256} << 10;

Fiber* running = nullptr;

}  // namespace

#ifdef __x86_64__

// Saves what a function must leave as it was on the stack, and goes on with
// another: swapcontext would ask the system for each switch.
extern "C" void attnd_emulation_switch(void** save, void* to);
asm(R"(
.text
.globl attnd_emulation_switch
.type attnd_emulation_switch, @function
attnd_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size attnd_emulation_switch, . - attnd_emulation_switch
)");

struct Fiber::Context {
  void* host = nullptr;  // stack pointers
  void* fiber = nullptr;

  void Start(std::byte* stack, void (*enter)()) {
    auto** top = reinterpret_cast<void**>(stack + kStackBytes);
    *--top = nullptr;  // where `enter` would return to; aligns its frame
    *--top = reinterpret_cast<void*>(enter);
    for (int i = 0; i < 6; ++i) *--top = nullptr;  // registers
    fiber = top;
  }
  void ToFiber() { attnd_emulation_switch(&host, fiber); }
  void ToHost() { attnd_emulation_switch(&fiber, host); }
};

#else

struct Fiber::Context {
  ucontext_t host, fiber;

  void Start(std::byte* stack, void (*enter)()) {
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = stack;
    fiber.uc_stack.ss_size = kStackBytes;
    fiber.uc_link = nullptr;
    makecontext(&fiber, enter, 0);
  }
  void ToFiber() { swapcontext(&host, &fiber); }
  void ToHost() { swapcontext(&fiber, &host); }
};

#endif

namespace {

// What the address sanitizer is told of each switch.
#ifdef ATTND_ADDRESS_SANITIZER
const void* host_stack = nullptr;
size_t host_stack_bytes = 0;

void Forget(std::byte* stack) {
  // A fiber that was left for good has not cleaned up.
  __asan_unpoison_memory_region(stack, kStackBytes);
}
void* LeaveHost(const std::byte* stack) {
  void* frames = nullptr;
  __sanitizer_start_switch_fiber(&frames, stack, kStackBytes);
  return frames;
}
void ComeToHost(void* frames) {
  __sanitizer_finish_switch_fiber(frames, nullptr, nullptr);
}
void* LeaveFiber() {
  void* frames = nullptr;
  __sanitizer_start_switch_fiber(&frames, host_stack, host_stack_bytes);
  return frames;
}
void ComeToFiber(void* frames) {
  __sanitizer_finish_switch_fiber(frames, &host_stack, &host_stack_bytes);
}
#else
void Forget(std::byte*) {}
void* LeaveHost(const std::byte*) { return nullptr; }
void ComeToHost(void*) {}
void* LeaveFiber() { return nullptr; }
void ComeToFiber(void*) {}
#endif

}  // namespace

Fiber::Fiber() : context_(new Context) {
  void* memory =
      mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::abort();
  }
  stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
}

Fiber::~Fiber() {
  Forget(stack_);
  munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
  delete context_;
}

void Fiber::Start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  Forget(stack_);
  context_->Start(stack_, &Enter);
}

void Fiber::Resume() {
  running = this;
  void* frames = LeaveHost(stack_);
  context_->ToFiber();
  ComeToHost(frames);
  running = nullptr;
}

void Fiber::Suspend() {
  Fiber* fiber = running;
  void* frames = LeaveFiber();
  fiber->context_->ToHost();
  ComeToFiber(frames);
}

bool Fiber::IsRunning() { return running != nullptr; }

void Fiber::Enter() {
  ComeToFiber(nullptr);
  running->entry_(running->argument_);
  std::abort();  // it has returned
}

}  // namespace attnd::emulation
