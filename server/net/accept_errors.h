#ifndef ATTND_SERVER_NET_ACCEPT_ERRORS_H_
#define ATTND_SERVER_NET_ACCEPT_ERRORS_H_

// What whoever accepts connections does when that fails.

#include <array>

#include "base/descriptor.h"

namespace attnd::server {

// Whether accepting failed with `error` because of a connection that has ended
// by itself; the next may be sound. Linux passes on what happened to it
// (accept(2)).
bool IsOfThePeer(int error);

// Descriptors to be closed where one is needed and the process has no other:
// without one, accepting fails whether or not anybody waits. Several, since
// another thread may take what was freed. Not thread-safe.
class DescriptorReserve {
 public:
  // Opens those that are missing, as far as it can.
  void Fill();
  // Closes one; false: there is none.
  bool Free();

 private:
  std::array<Descriptor, 4> spare_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_NET_ACCEPT_ERRORS_H_
