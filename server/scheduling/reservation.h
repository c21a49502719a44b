#ifndef ATTND_SERVER_SCHEDULING_RESERVATION_H_
#define ATTND_SERVER_SCHEDULING_RESERVATION_H_

#include <memory>
#include <string>
#include <utility>

#include "server/scheduling/admission.h"
#include "server/work/account.h"

namespace attnd::server {

class Scheduler;

// What an admitted request holds before it is submitted, maybe for as long as
// its inputs take to arrive: its bytes on the account and its place in the
// queue. Given up unless it is submitted. Move-only; its scheduler outlives it.
class Reservation {
 public:
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { GiveUp(); }

  const Footprint& footprint() const { return footprint_; }

 private:
  friend class Scheduler;
  Reservation() = default;
  void GiveUp();

  Scheduler* scheduler_ = nullptr;  // null: holds nothing (any more)
  Footprint footprint_;
  std::string client_;
  std::shared_ptr<Charge> charge_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_SCHEDULING_RESERVATION_H_
