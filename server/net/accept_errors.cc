#include "server/net/accept_errors.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace attnd::server {

bool IsOfThePeer(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EOPNOTSUPP:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

void DescriptorReserve::Fill() {
  for (Descriptor& spare : spare_) {
    if (spare.valid()) continue;
    spare = Descriptor(eventfd(0, EFD_CLOEXEC));
    if (!spare.valid()) return;
  }
}

bool DescriptorReserve::Free() {
  for (Descriptor& spare : spare_) {
    if (!spare.valid()) continue;
    spare = Descriptor();
    return true;
  }
  return false;
}

}  // namespace attnd::server
