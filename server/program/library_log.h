#ifndef ATTND_SERVER_PROGRAM_LIBRARY_LOG_H_
#define ATTND_SERVER_PROGRAM_LIBRARY_LOG_H_

#include "server/telemetry/log.h"

namespace attnd::server {

// Sends what gRPC and protobuf log in this process to `log`, which must live as
// long as the process; clients cause most of it. GRPC_VERBOSITY and GRPC_TRACE
// choose gRPC's lines as ever; of all of them LineLimit leaves out what is too
// much. Once.
void SendLibraryLinesTo(Log& log);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_LIBRARY_LOG_H_
