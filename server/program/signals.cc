#include "server/program/signals.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "absl/strings/str_cat.h"

namespace attnd::server {
namespace {

bool EndsTheServer(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT;
}

// Whether its default is to end the process for no fault of its own.
bool EndsTheProcess(int signal) {
  switch (signal) {
    case SIGHUP:
    case SIGUSR1:
    case SIGUSR2:
    case SIGALRM:
    case SIGVTALRM:
    case SIGPROF:
    case SIGIO:
    case SIGPWR:
    case SIGSTKFLT:
    case SIGXCPU:
    case SIGXFSZ:
      return true;
    default:
      return signal >= SIGRTMIN && signal <= SIGRTMAX;
  }
}

// Left alone: a profiler's, say.
bool HasHandler(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

}  // namespace

sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (EndsTheServer(signal) ||
        (EndsTheProcess(signal) && !HasHandler(signal))) {
      sigaddset(&signals, signal);
    }
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int AwaitEnd(const sigset_t& signals, Log& log) {
  return AwaitEnd(signals, log, absl::Hours(24), [] {});
}

int AwaitEnd(const sigset_t& signals, Log& log, absl::Duration interval,
             absl::FunctionRef<void()> meanwhile) {
  while (true) {
    const timespec patience = absl::ToTimespec(interval);
    const int signal = sigtimedwait(&signals, nullptr, &patience);
    if (signal < 0) {
      if (errno == EAGAIN) meanwhile();
    } else if (EndsTheServer(signal)) {
      return signal;
    } else {
      log.Write(absl::StrCat(strsignal(signal), ": ignored"));
    }
  }
}

}  // namespace attnd::server
