#ifndef ATTND_SERVER_PROGRAM_SIGNALS_H_
#define ATTND_SERVER_PROGRAM_SIGNALS_H_

#include <signal.h>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/telemetry/log.h"

namespace attnd::server {

// Blocks every signal that would end the process, unless it is a fault of its
// own (SIGSEGV and such) or has a handler: in this thread, and so in all that
// it starts. SIGPIPE is ignored. Returns those that AwaitEnd receives.
sigset_t BlockSignals();

// Waits for SIGTERM, SIGINT or SIGQUIT and returns it. Others of `signals` are
// logged, and nothing else: there is nothing to reload or reopen.
int AwaitEnd(const sigset_t& signals, Log& log);
// The same, and calls `meanwhile` every `interval`.
int AwaitEnd(const sigset_t& signals, Log& log, absl::Duration interval,
             absl::FunctionRef<void()> meanwhile);

}  // namespace attnd::server

#endif  // ATTND_SERVER_PROGRAM_SIGNALS_H_
