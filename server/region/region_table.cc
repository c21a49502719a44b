#include "server/region/region_table.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

constexpr size_t kIdBytes = 16;

}  // namespace

absl::StatusOr<std::string> NewRegionId() {
  std::string id(kIdBytes, '\0');
  ssize_t got = -1;
  do {
    got = getrandom(id.data(), id.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(kIdBytes)) {
    return absl::InternalError(
        absl::StrCat("no random bytes: ", std::strerror(errno)));
  }
  return id;
}

void RegionTable::Add(std::shared_ptr<const Region> region) {
  MutexLock lock(mutex_);
  std::string id = region->id();
  regions_.emplace(std::move(id), std::move(region));
}

void RegionTable::Remove(const std::string& id) {
  std::shared_ptr<const Region> region;  // goes without the lock
  MutexLock lock(mutex_);
  const auto found = regions_.find(id);
  if (found == regions_.end()) return;
  region = std::move(found->second);
  regions_.erase(found);
}

std::shared_ptr<const Region> RegionTable::Find(const std::string& id) const {
  MutexLock lock(mutex_);
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : found->second;
}

}  // namespace attnd::server
