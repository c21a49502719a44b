#ifndef ATTND_SERVER_PROGRAM_FLAGS_H_
#define ATTND_SERVER_PROGRAM_FLAGS_H_

// The flags of a server program.

#include <string>

#include "CLI/CLI.hpp"
#include "server/config/options.h"
#include "server/program/devices.h"
#include "server/telemetry/log_form.h"

namespace attnd::server {

struct Flags {
  Flags() {
    server.port = 7411;  // where attnctl looks
    server.scheduler = SchedulerDefaults(DeviceOptions::Kind::kCpu);
  }

  ServerOptions server;
  DeviceOptions devices;
  std::string port_file;
  LogOptions log;
  std::string config;  // a file with flags; empty: none
  bool print_config = false;
};

// Lets `app` read all of `flags`, which must outlive it.
void AddFlags(CLI::App& app, Flags& flags);

// Sets what was not given to its default on the devices, once they are
// resolved, and has `app` know it as the default.
void SetDeviceDefaults(CLI::App& app, Flags& flags);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_FLAGS_H_
