#include "base/guard/guard.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "base/guard/system_calls.h"

namespace attnd {
namespace {

// Guards by descriptor, in pages that are made when they are needed and never
// go: the first 2^20 numbers, which is as many as Linux allows a process unless
// told otherwise. Looking for one takes no lock.
constexpr size_t kPageSize = 1024;
constexpr size_t kPages = 1024;
using Page = std::array<std::atomic<SocketGuard*>, kPageSize>;
std::array<std::atomic<Page*>, kPages> pages;

std::atomic<SocketGuard*>* Slot(int fd) {
  const auto number = static_cast<size_t>(fd);
  if (fd < 0 || number >= kPages * kPageSize) return nullptr;
  Page* const page = pages[number / kPageSize].load(std::memory_order_acquire);
  return page == nullptr ? nullptr : &(*page)[number % kPageSize];
}

std::atomic<SocketGuard*>* MakeSlot(int fd) {
  const auto number = static_cast<size_t>(fd);
  if (fd < 0 || number >= kPages * kPageSize) return nullptr;
  std::atomic<Page*>& at = pages[number / kPageSize];
  if (at.load(std::memory_order_acquire) == nullptr) {
    auto page = std::make_unique<Page>();
    Page* expected = nullptr;
    if (at.compare_exchange_strong(expected, page.get(),
                                   std::memory_order_acq_rel)) {
      (void)page.release();
    }
  }
  return Slot(fd);
}

std::unique_ptr<SocketGuard> TakeGuard(int fd) {
  std::atomic<SocketGuard*>* const slot = Slot(fd);
  if (slot == nullptr || slot->load(std::memory_order_relaxed) == nullptr) {
    return nullptr;
  }
  return std::unique_ptr<SocketGuard>(
      slot->exchange(nullptr, std::memory_order_acq_rel));
}

}  // namespace

bool PutGuard(int fd, std::unique_ptr<SocketGuard> guard) {
  std::atomic<SocketGuard*>* const slot = MakeSlot(fd);
  if (slot == nullptr) return false;
  delete slot->exchange(guard.release(), std::memory_order_acq_rel);
  return true;
}

SocketGuard* GuardOf(int fd) {
  std::atomic<SocketGuard*>* const slot = Slot(fd);
  return slot == nullptr ? nullptr : slot->load(std::memory_order_acquire);
}

bool GuardsAreAsked() {
  const auto is_ours = [](const char* name, auto* ours) {
    return dlsym(RTLD_DEFAULT, name) == reinterpret_cast<void*>(ours);
  };
  return is_ours("recvmsg", &::recvmsg) && is_ours("sendmsg", &::sendmsg) &&
         is_ours("setsockopt", &::setsockopt) && is_ours("close", &::close);
}

}  // namespace attnd

// As <sys/socket.h> and <unistd.h> declare them.

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  // What the system says of a socket's errors is nobody's bytes.
  auto* const guard =
      (flags & MSG_ERRQUEUE) == 0 ? attnd::GuardOf(fd) : nullptr;
  return guard != nullptr ? guard->Receive(message, flags)
                          : attnd::system_calls::Recvmsg(fd, message, flags);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  auto* const guard = attnd::GuardOf(fd);
  return guard != nullptr ? guard->Send(message, flags)
                          : attnd::system_calls::Sendmsg(fd, message, flags);
}

// gRPC has the system wake nobody before so many bytes are there as it lacks.
// Some of them may be here already, where TLS keeps what is no whole record.
int setsockopt(int fd, int level, int name, const void* value,
               socklen_t size) noexcept {
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) {
    auto* const guard = attnd::GuardOf(fd);
    if (guard != nullptr && !guard->is_plain()) return 0;
  }
  return attnd::system_calls::Setsockopt(fd, level, name, value, size);
}

int close(int fd) {
  const auto guard = attnd::TakeGuard(fd);
  return attnd::system_calls::Close(fd);
}
