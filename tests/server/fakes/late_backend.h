#ifndef ATTND_TESTS_SERVER_FAKES_LATE_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_LATE_BACKEND_H_

// A device that is given work at once, and is done with it when the test says.

#include "tests/notification.h"
#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {

class LateBackend : public IdentityBackend {
 public:
  using IdentityBackend::IdentityBackend;

  // Returns once a lane waits for it, as one does at most.
  void AwaitWait() { waiting_.WaitForNotification(); }
  // Once: it is done, and from now on with everything at once.
  void Finish() { done_.Notify(); }

  bool IsOver() override { return done_.HasBeenNotified(); }
  absl::Status On(Stage stage, Group) override {
    if (stage != Stage::kWait || done_.HasBeenNotified()) {
      return absl::OkStatus();
    }
    waiting_.Notify();
    done_.WaitForNotification();
    return absl::OkStatus();
  }

 private:
  Notification waiting_, done_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_LATE_BACKEND_H_
