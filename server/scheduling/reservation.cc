#include "server/scheduling/reservation.h"

#include "server/scheduling/scheduler.h"

namespace attnd::server {

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  GiveUp();
  scheduler_ = std::exchange(other.scheduler_, nullptr);
  footprint_ = std::move(other.footprint_);
  client_ = std::move(other.client_);
  charge_ = std::move(other.charge_);
  return *this;
}

void Reservation::GiveUp() {
  if (scheduler_ == nullptr) return;
  std::exchange(scheduler_, nullptr)->GiveUp(*this);
  charge_.reset();
}

}  // namespace attnd::server
