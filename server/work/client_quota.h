#ifndef ATTND_SERVER_WORK_CLIENT_QUOTA_H_
#define ATTND_SERVER_WORK_CLIENT_QUOTA_H_

#include <cstdint>

namespace attnd::server {

// What a client may have, beside what all clients share; 0: no limit of its
// own.
struct ClientQuota {
  int64_t queue_bytes = 0;  // on the byte account
  double queue_flops = 0;   // of requests that wait
  // Of the devices' time while others wait as well, beside others' one each.
  double shares = 1;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_WORK_CLIENT_QUOTA_H_
