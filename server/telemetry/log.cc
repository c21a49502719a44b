#include "server/telemetry/log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/printable.h"

namespace attnd::server {
namespace {

constexpr int kSources = 2;
// How often the log says that lines were left out.
constexpr absl::Duration kTellEvery = absl::Seconds(1);

std::string Stamped(absl::string_view line) {
  return absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", absl::Now(),
                                       absl::UTCTimeZone()),
                      Printable(line), "\n");
}

// False: nobody will ever read it, or its disk is full.
bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(n);
    } else if (errno == EAGAIN) {
      // Someone who shares it made it non-blocking.
      pollfd writable = {fd, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string Printable(absl::string_view text) {
  return attnd::Printable(
      text, {.escape_backslash = true, .max_bytes = kMaxLineBytes});
}

// What the log and its thread share.
class Log::Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}
  ~Writer() { close(fd_); }

  void Add(Source source, std::string line) {
    MutexLock lock(mutex_);
    if (TellIsDue()) Tell();
    Queue(source, std::move(line));
  }

  void LeftOut(Source source, int64_t lines) {
    MutexLock lock(mutex_);
    CountLeftOut(source, lines);
  }

  bool Flush(absl::Duration limit) {
    MutexLock lock(mutex_);
    tell_at_ = absl::InfinitePast();
    changed_.NotifyAll();
    return changed_.WaitUntil(lock, MonotonicNow() + limit,
                              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                return lines_.empty() && !writing_ &&
                                       !TellIsDue();
                              });
  }

  void Stop() {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }

  // The thread.
  void Run() {
    // A write to whoever has gone is an error and no signal.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    MutexLock lock(mutex_);
    while (!stopping_) {
      if (lines_.empty() && TellIsDue()) Tell();
      if (lines_.empty()) {
        changed_.NotifyAll();
        const bool telling = AnyLeftOut();
        changed_.WaitUntil(lock, telling ? tell_at_ : absl::InfiniteFuture(),
                           [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                             return stopping_ || !lines_.empty() ||
                                    TellIsDue() || AnyLeftOut() != telling;
                           });
        continue;
      }
      const auto [source, line] = std::move(lines_.front());
      lines_.pop_front();
      Of(source).queued_bytes -= line.size();
      writing_ = true;
      lock.Unlock();
      const bool written = WriteAll(fd_, line);
      lock.Lock();
      writing_ = false;
      if (!written) CountLeftOut(source, 1);
    }
  }

 private:
  struct State {
    size_t queued_bytes = 0;
    int64_t left_out = 0;  // and not yet told of
  };

  State& Of(Source source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return states_[static_cast<size_t>(source)];
  }

  void Queue(Source source, std::string line)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    State& state = Of(source);
    if (state.queued_bytes + line.size() > kQueueBytes) {
      return CountLeftOut(source, 1);
    }
    state.queued_bytes += line.size();
    lines_.emplace_back(source, std::move(line));
    changed_.NotifyAll();
  }

  void CountLeftOut(Source source, int64_t lines)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // It need not wake up for each.
    if (!AnyLeftOut()) changed_.NotifyAll();
    Of(source).left_out += lines;
  }

  bool AnyLeftOut() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return states_[0].left_out > 0 || states_[1].left_out > 0;
  }
  bool TellIsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return AnyLeftOut() && tell_at_ <= MonotonicNow();
  }
  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    tell_at_ = MonotonicNow() + kTellEvery;
    for (const Source source : {Source::kServer, Source::kLibrary}) {
      const int64_t lines = std::exchange(Of(source).left_out, 0);
      if (lines == 0) continue;
      Queue(source,
            Stamped(absl::StrCat(
                lines,
                source == Source::kLibrary ? " lines of libraries" : " lines",
                " left out")));
      // A full queue left this out as well.
      if (Of(source).left_out > 0) Of(source).left_out = lines;
    }
  }

  const int fd_;  // -1: none
  Mutex mutex_;
  Condition changed_;
  std::deque<std::pair<Source, std::string>> lines_ ABSL_GUARDED_BY(mutex_);
  std::array<State, kSources> states_ ABSL_GUARDED_BY(mutex_);
  absl::Time tell_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::StatusOr<std::unique_ptr<Log>> Log::Start(int fd) {
  auto writer = std::make_shared<Writer>(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  try {
    std::thread([writer] { writer->Run(); }).detach();
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("cannot start a thread for the log");
  }
  return std::unique_ptr<Log>(new Log(std::move(writer)));
}

Log::Log(std::shared_ptr<Writer> writer) : writer_(std::move(writer)) {}
Log::~Log() { writer_->Stop(); }

void Log::Write(absl::string_view line, Source source) {
  writer_->Add(source, Stamped(line));
}
void Log::LeftOut(Source source, int64_t lines) {
  writer_->LeftOut(source, lines);
}
bool Log::Flush(absl::Duration limit) { return writer_->Flush(limit); }

}  // namespace attnd::server
