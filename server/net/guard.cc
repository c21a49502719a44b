#include "server/net/guard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "server/net/system_calls.h"

namespace attnd::server {
namespace {

// Guards by descriptor, in pages that are made when they are needed and never
// go: the first 2^20 numbers, which is as many as Linux allows a process unless
// told otherwise. Looking for one takes no lock.
constexpr size_t kPageSize = 1024;
constexpr size_t kPages = 1024;
using Page = std::array<std::atomic<GuardedConnection*>, kPageSize>;
std::array<std::atomic<Page*>, kPages> pages;

std::atomic<GuardedConnection*>* Slot(int fd) {
  const auto number = static_cast<size_t>(fd);
  if (fd < 0 || number >= kPages * kPageSize) return nullptr;
  Page* const page = pages[number / kPageSize].load(std::memory_order_acquire);
  return page == nullptr ? nullptr : &(*page)[number % kPageSize];
}

std::atomic<GuardedConnection*>* MakeSlot(int fd) {
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

std::unique_ptr<GuardedConnection> TakeGuard(int fd) {
  std::atomic<GuardedConnection*>* const slot = Slot(fd);
  if (slot == nullptr || slot->load(std::memory_order_relaxed) == nullptr) {
    return nullptr;
  }
  return std::unique_ptr<GuardedConnection>(
      slot->exchange(nullptr, std::memory_order_acq_rel));
}

}  // namespace

bool PutGuard(int fd, std::unique_ptr<GuardedConnection> guard) {
  std::atomic<GuardedConnection*>* const slot = MakeSlot(fd);
  if (slot == nullptr) return false;
  delete slot->exchange(guard.release(), std::memory_order_acq_rel);
  return true;
}

GuardedConnection* GuardOf(int fd) {
  std::atomic<GuardedConnection*>* const slot = Slot(fd);
  return slot == nullptr ? nullptr : slot->load(std::memory_order_acquire);
}

}  // namespace attnd::server

// As <sys/socket.h> and <unistd.h> declare them.

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  auto* const guard = attnd::server::GuardOf(fd);
  return guard != nullptr
             ? guard->Receive(message, flags)
             : attnd::server::system_calls::Recvmsg(fd, message, flags);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  auto* const guard = attnd::server::GuardOf(fd);
  return guard != nullptr
             ? guard->Send(message, flags)
             : attnd::server::system_calls::Sendmsg(fd, message, flags);
}

// gRPC has the system wake nobody before so many bytes are there as it lacks.
// Some of them may be here already, where TLS keeps what is no whole record.
int setsockopt(int fd, int level, int name, const void* value,
               socklen_t size) noexcept {
  if (level == SOL_SOCKET && name == SO_RCVLOWAT) {
    auto* const guard = attnd::server::GuardOf(fd);
    if (guard != nullptr && !guard->is_plain()) return 0;
  }
  return attnd::server::system_calls::Setsockopt(fd, level, name, value, size);
}

int close(int fd) {
  const auto guard = attnd::server::TakeGuard(fd);
  return attnd::server::system_calls::Close(fd);
}
