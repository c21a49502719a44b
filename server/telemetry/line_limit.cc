#include "server/telemetry/line_limit.h"

#include <algorithm>

namespace attnd::server {
namespace {

constexpr double kPlaceBytes = 3 << 10;
constexpr double kPlaceBytesPerSecond = 1 << 10;

}  // namespace

bool ByteBudget::Has(size_t bytes, absl::Time now) {
  left_ = std::min(
      most_, left_ + bytes_per_second_ * absl::ToDoubleSeconds(now - at_));
  at_ = now;
  return static_cast<double>(bytes) <= left_;
}

bool LineLimit::Allows(Place place, size_t bytes, absl::Time now) {
  ByteBudget& here =
      places_.try_emplace(place, ByteBudget(kPlaceBytes, kPlaceBytesPerSecond))
          .first->second;
  if (!here.Has(bytes, now) || !all_.Has(bytes, now)) return false;
  here.Take(bytes);
  all_.Take(bytes);
  return true;
}

}  // namespace attnd::server
