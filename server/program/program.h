#ifndef ATTND_SERVER_PROGRAM_PROGRAM_H_
#define ATTND_SERVER_PROGRAM_PROGRAM_H_

// A server program: flags, signals and a log around the server library. attnd
// is this with the machine's devices.

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/program/devices.h"

namespace attnd::server {

using CreateBackends =
    std::function<absl::StatusOr<std::vector<std::unique_ptr<Backend>>>(
        const DeviceOptions&)>;

// Called once, with options that are resolved. Serves until SIGTERM, SIGINT or
// SIGQUIT, drains and ends the process: with 0, or 1 when a second one cuts it
// short.
// Returns 1 when it cannot start, 2 when flags are wrong.
int RunProgram(int argc, char** argv, const CreateBackends& create);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_PROGRAM_H_
