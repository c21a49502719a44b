#include "server/telemetry/log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"

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
  std::string line;
  for (const char c : text) {
    if (line.size() >= kMaxLineBytes) return line + "...";
    if (absl::ascii_isprint(c) && c != '\\') {
      line += c;
    } else {
      absl::StrAppend(
          &line, "\\x",
          absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return line;
}

// What the log and its thread share.
class Log::Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}
  ~Writer() { close(fd_); }

  void Add(Source source, std::string line) {
    std::lock_guard lock(mutex_);
    if (TellIsDueLocked()) TellLocked();
    QueueLocked(source, std::move(line));
  }

  void LeftOut(Source source, int64_t lines) {
    std::lock_guard lock(mutex_);
    LeftOutLocked(source, lines);
  }

  bool Flush(absl::Duration limit) {
    std::unique_lock lock(mutex_);
    tell_at_ = absl::InfinitePast();
    changed_.notify_all();
    return WaitUntil(changed_, lock, MonotonicNow() + limit, [this] {
      return lines_.empty() && !writing_ && !TellIsDueLocked();
    });
  }

  void Stop() {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }

  // The thread.
  void Run() {
    // A write to whoever has gone is an error and no signal.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (lines_.empty() && TellIsDueLocked()) TellLocked();
      if (lines_.empty()) {
        changed_.notify_all();
        const bool telling = AnyLeftOutLocked();
        WaitUntil(changed_, lock, telling ? tell_at_ : absl::InfiniteFuture(),
                  [&] {
                    return stopping_ || !lines_.empty() || TellIsDueLocked() ||
                           AnyLeftOutLocked() != telling;
                  });
        continue;
      }
      const auto [source, line] = std::move(lines_.front());
      lines_.pop_front();
      Of(source).queued_bytes -= line.size();
      writing_ = true;
      lock.unlock();
      const bool written = WriteAll(fd_, line);
      lock.lock();
      writing_ = false;
      if (!written) LeftOutLocked(source, 1);
    }
  }

 private:
  struct State {
    size_t queued_bytes = 0;
    int64_t left_out = 0;  // and not yet told of
  };

  State& Of(Source source) { return states_[static_cast<size_t>(source)]; }

  void QueueLocked(Source source, std::string line) {
    State& state = Of(source);
    if (state.queued_bytes + line.size() > kQueueBytes) {
      return LeftOutLocked(source, 1);
    }
    state.queued_bytes += line.size();
    lines_.emplace_back(source, std::move(line));
    changed_.notify_all();
  }

  void LeftOutLocked(Source source, int64_t lines) {
    // It need not wake up for each.
    if (!AnyLeftOutLocked()) changed_.notify_all();
    Of(source).left_out += lines;
  }

  bool AnyLeftOutLocked() const {
    return states_[0].left_out > 0 || states_[1].left_out > 0;
  }
  bool TellIsDueLocked() const {
    return AnyLeftOutLocked() && tell_at_ <= MonotonicNow();
  }
  void TellLocked() {
    tell_at_ = MonotonicNow() + kTellEvery;
    for (const Source source : {Source::kServer, Source::kLibrary}) {
      const int64_t lines = std::exchange(Of(source).left_out, 0);
      if (lines == 0) continue;
      QueueLocked(source, Stamped(absl::StrCat(lines,
                                               source == Source::kLibrary
                                                   ? " lines of libraries"
                                                   : " lines",
                                               " left out")));
      // A full queue left this out as well.
      if (Of(source).left_out > 0) Of(source).left_out = lines;
    }
  }

  const int fd_;  // -1: none
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Source, std::string>> lines_;
  std::array<State, kSources> states_;
  absl::Time tell_at_ = absl::InfinitePast();
  bool writing_ = false;
  bool stopping_ = false;
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
