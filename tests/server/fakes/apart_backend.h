#ifndef ATTND_TESTS_SERVER_FAKES_APART_BACKEND_H_
#define ATTND_TESTS_SERVER_FAKES_APART_BACKEND_H_

// A device with memory of its own, as GPUs have.

#include "tests/server/fakes/identity_backend.h"

namespace attnd::server {

class ApartBackend : public IdentityBackend {
 public:
  ApartBackend() : apart_(IdentityBackend::device()) {
    apart_.shares_host_memory = false;
  }
  const DeviceInfo& device() const override { return apart_; }

 private:
  DeviceInfo apart_;
};

}  // namespace attnd::server

#endif  // ATTND_TESTS_SERVER_FAKES_APART_BACKEND_H_
