#ifndef ATTND_SERVER_PROGRAM_THREADS_H_
#define ATTND_SERVER_PROGRAM_THREADS_H_

// Whether there may be as many threads as a server needs. gRPC aborts or hangs
// when it cannot have one of its own, so this is found out before it starts.

#include "server/config/options.h"

namespace attnd::server {

struct ThreadNeeds {
  int at_start = 0;    // of the server, its lanes, gRPC and the metrics
  int under_load = 0;  // what gRPC may add to them
};
// Of a server over `devices` devices, whose own threads are not counted.
ThreadNeeds NeedsOf(const ServerOptions& options, int devices);

// How many threads could be added now, at most `wanted`: starts and ends them.
int CountStartable(int wanted);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_THREADS_H_
