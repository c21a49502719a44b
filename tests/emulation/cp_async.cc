#include "tests/emulation/cp_async.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "tests/emulation/scheduler.h"

namespace attnd::emulation {

void CpAsyncGroups::Start(uint32_t to, const void* from, uint32_t bytes) {
  if (bytes > 16) Fail("cp.async of more than 16 bytes");
  if (bytes > 0 && reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    Fail("cp.async from an address that is not a multiple of 16");
  }
  std::byte* at = SharedAt(to, 16);
  std::memset(at, 0xff, 16);
  open_.push_back({at, static_cast<const std::byte*>(from), bytes});
}

void CpAsyncGroups::Commit() {
  groups_.push_back(std::exchange(open_, {}));
  if (Random(3) > 0) return;
  Make(groups_.back());
  groups_.back().clear();
}

void CpAsyncGroups::Wait(size_t pending) {
  while (groups_.size() > pending) {
    Make(groups_.front());
    groups_.pop_front();
  }
}

void CpAsyncGroups::Make(const std::vector<Copy>& group) {
  for (const Copy& copy : group) {
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
    std::memset(copy.to + copy.bytes, 0, 16 - copy.bytes);
  }
}

void StoreGroups::Commit() {
  for (Store& store : open_) to_read_.push_back(std::move(store));
  open_.clear();
}

void StoreGroups::WaitUntilRead() {
  for (Store& store : to_read_) {
    store.read();
    to_write_.push_back(std::move(store));
  }
  to_read_.clear();
}

void StoreGroups::WaitUntilWritten() {
  WaitUntilRead();
  for (Store& store : to_write_) store.write();
  to_write_.clear();
}

void StartCpAsync(uint32_t to, const void* from, uint32_t bytes) {
  Self().cp_async.Start(to, from, bytes);
}
void CommitCpAsync() { Self().cp_async.Commit(); }
void WaitForCpAsync(size_t pending) { Self().cp_async.Wait(pending); }

void CommitStoreGroup() { Self().stores.Commit(); }
void WaitForStoreGroups(bool read) {
  if (read) {
    Self().stores.WaitUntilRead();
  } else {
    Self().stores.WaitUntilWritten();
  }
}

}  // namespace attnd::emulation
