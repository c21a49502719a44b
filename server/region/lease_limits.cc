#include "server/region/lease_limits.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/net/origin.h"

namespace attnd::server {
namespace {

// From so many on, users are looked at that may be forgotten.
constexpr size_t kManyUsers = 64;

}  // namespace

LeaseLimits::Held::Held(std::shared_ptr<LeaseLimits> limits, RegionKind kind,
                        uid_t user, std::shared_ptr<Charge> charge)
    : limits_(std::move(limits)),
      kind_(kind),
      user_(user),
      charge_(std::move(charge)) {}

LeaseLimits::Held::~Held() { limits_->Release(kind_, user_, charge_->bytes()); }

std::shared_ptr<LeaseLimits> LeaseLimits::Create(const RegionOptions& options,
                                                 int64_t host_bytes,
                                                 int64_t device_bytes) {
  return std::shared_ptr<LeaseLimits>(
      new LeaseLimits(options, host_bytes, device_bytes));
}

LeaseLimits::LeaseLimits(const RegionOptions& options, int64_t host_bytes,
                         int64_t device_bytes)
    : options_(options),
      accounts_{Account::Create(host_bytes), Account::Create(device_bytes)} {}

std::variant<std::shared_ptr<LeaseLimits::Held>, RegionRefusal>
LeaseLimits::TryHold(RegionKind kind, uid_t user, int64_t bytes,
                     absl::Time now) {
  const int index = static_cast<int>(kind);
  Account& account = *accounts_[index];
  MutexLock lock(mutex_);
  if (users_.size() >= kManyUsers) ForgetIdle(now);
  User& of = users_[user];
  if (kind == RegionKind::kDevice && !TakeImport(of, now)) {
    return RegionRefusal::kRateOfImports;
  }
  const int64_t most_regions = kind == RegionKind::kHost
                                   ? options_.max_leases_per_user
                                   : options_.max_imports_per_user;
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
  if (kind == RegionKind::kHost && options_.memory_per_user_bytes > 0) {
    most_bytes = options_.memory_per_user_bytes;
  }
  HeldRegions& held = of.held[index];
  if (held.count >= most_regions || bytes > most_bytes - held.bytes) {
    return RegionRefusal::kLimitOfUser;
  }
  const bool fits = bytes <= account.limit_bytes() - account.held_bytes();
  std::shared_ptr<Charge> charge =
      account.TryCharge(ToString(UserOrigin(user)), bytes);
  if (charge == nullptr) {
    return fits ? RegionRefusal::kLimitOfUser : RegionRefusal::kMemory;
  }
  ++counts_[index];
  ++held.count;
  held.bytes += bytes;
  return std::make_shared<Held>(shared_from_this(), kind, user,
                                std::move(charge));
}

int64_t LeaseLimits::limit_bytes(RegionKind kind) const {
  return accounts_[static_cast<int>(kind)]->limit_bytes();
}

HeldRegions LeaseLimits::held(RegionKind kind) const {
  const int index = static_cast<int>(kind);
  MutexLock lock(mutex_);
  return {counts_[index], accounts_[index]->held_bytes()};
}

// As many as come in a second may also come at once.
bool LeaseLimits::TakeImport(User& user, absl::Time now) const {
  const double rate = options_.imports_per_second;
  user.imports = std::min(
      rate, user.imports + rate * absl::ToDoubleSeconds(now - user.at));
  user.at = now;
  if (user.imports < 1) return false;
  user.imports -= 1;
  return true;
}

void LeaseLimits::ForgetIdle(absl::Time now) {
  absl::erase_if(users_, [now](const auto& entry) {
    const User& user = entry.second;
    return user.held[0].count == 0 && user.held[1].count == 0 &&
           now - user.at >= absl::Seconds(1);
  });
}

void LeaseLimits::Release(RegionKind kind, uid_t user, int64_t bytes) {
  const int index = static_cast<int>(kind);
  MutexLock lock(mutex_);
  --counts_[index];
  HeldRegions& held = users_[user].held[index];
  --held.count;
  held.bytes -= bytes;
}

}  // namespace attnd::server
