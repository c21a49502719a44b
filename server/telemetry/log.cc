#include "server/telemetry/log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/telemetry/log_form.h"
#include "spdlog/details/log_msg.h"
#include "spdlog/logger.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/sink.h"

namespace attnd::server {
namespace {

constexpr absl::string_view kLeftOut[] = {" lines left out",
                                          " lines of libraries left out",
                                          " lines of calls left out"};
static_assert(std::size(kLeftOut) == kLogSources);

// How often the log says that lines were left out.
constexpr absl::Duration kTellEvery = absl::Seconds(1);

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

// How many of `bytes` were written: fewer where nobody will ever read them, or
// their disk is full.
size_t WriteAll(int fd, absl::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + written, bytes.size() - written);
    if (n >= 0) {
      written += n;
    } else if (errno == EAGAIN) {
      // Someone who shares it made it non-blocking.
      pollfd writable = {fd, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      break;
    }
  }
  return written;
}

}  // namespace

// What the log and its thread share.
class Log::Writer {
 public:
  Writer(int fd, LogOptions::Format format)
      : fd_(fd),
        format_(format),
        form_(LinePattern(format), spdlog::pattern_time_type::utc) {}
  ~Writer() { close(fd_); }

  void Add(Source source, const spdlog::details::log_msg& message) {
    MutexLock lock(mutex_);
    if (TellIsDue()) Tell();
    Queue(source, message);
  }

  void LeftOut(Source source, int64_t lines) {
    MutexLock lock(mutex_);
    CountLeftOut(source, lines);
    Of(source).ever.by_owner += lines;
  }

  LogStats stats() const {
    MutexLock lock(mutex_);
    LogStats lines;
    for (int i = 0; i < kLogSources; ++i) lines[i] = states_[i].ever;
    return lines;
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
      const Line line = std::move(lines_.front());
      lines_.pop_front();
      Of(line.source).queued_bytes -= line.text.size();
      writing_ = true;
      lock.Unlock();
      const bool written = WriteLine(line.text);
      lock.Lock();
      writing_ = false;
      if (!written) CountUnwritten(line);
    }
  }

 private:
  struct Line {
    Source source;
    std::string text;
    // So many lines that were left out, which it tells of; 0: it is one itself.
    int64_t tells_of = 0;
  };

  struct State {
    size_t queued_bytes = 0;
    int64_t left_out = 0;  // and not yet told of
    LeftOutLines ever;
  };

  State& Of(Source source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return states_[static_cast<size_t>(source)];
  }

  // On the thread. False: it is not all there. A line after one that is half
  // there begins on a line of its own.
  bool WriteLine(const std::string& line) {
    const std::string text = torn_ ? "\n" + line : line;
    const size_t written = WriteAll(fd_, text);
    if (written > 0) torn_ = text[written - 1] != '\n';
    return written == text.size();
  }

  void Queue(Source source, const spdlog::details::log_msg& message,
             int64_t tells_of = 0) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    spdlog::memory_buf_t formed;
    form_.format(message, formed);
    Line line = {source, std::string(formed.data(), formed.size()), tells_of};
    State& state = Of(source);
    if (state.queued_bytes + line.text.size() > kQueueBytes) {
      return CountUnwritten(line);
    }
    state.queued_bytes += line.text.size();
    lines_.push_back(std::move(line));
    changed_.NotifyAll();
  }

  void CountLeftOut(Source source, int64_t lines)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // It need not wake up for each.
    if (!AnyLeftOut()) changed_.NotifyAll();
    Of(source).left_out += lines;
  }
  void CountUnwritten(const Line& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // What it told of is still to be told, and was counted then.
    if (line.tells_of > 0) return CountLeftOut(line.source, line.tells_of);
    CountLeftOut(line.source, 1);
    ++Of(line.source).ever.by_reader;
  }

  bool AnyLeftOut() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::any_of(states_.begin(), states_.end(),
                       [](const State& state) { return state.left_out > 0; });
  }
  bool TellIsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return AnyLeftOut() && tell_at_ <= MonotonicNow();
  }
  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    tell_at_ = MonotonicNow() + kTellEvery;
    for (int i = 0; i < kLogSources; ++i) {
      const int64_t lines = std::exchange(states_[i].left_out, 0);
      if (lines == 0) continue;
      const std::string text = LineText(
          {LogLevel::kWarning, absl::StrCat(lines, kLeftOut[i])}, format_);
      Queue(static_cast<Source>(i), {"", spdlog::level::warn, text}, lines);
    }
  }

  const int fd_;  // -1: none
  const LogOptions::Format format_;
  mutable Mutex mutex_;
  spdlog::pattern_formatter form_ ABSL_GUARDED_BY(mutex_);
  Condition changed_;
  std::deque<Line> lines_ ABSL_GUARDED_BY(mutex_);
  std::array<State, kLogSources> states_ ABSL_GUARDED_BY(mutex_);
  absl::Time tell_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool torn_ = false;  // the thread's: a line is half written
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

// Where a logger's lines go.
class Log::Sink final : public spdlog::sinks::sink {
 public:
  Sink(std::shared_ptr<Writer> writer, Source source)
      : writer_(std::move(writer)), source_(source) {}

  void log(const spdlog::details::log_msg& message) override {
    writer_->Add(source_, message);
  }
  void flush() override {}
  // The form is the log's, and the same for all.
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  const std::shared_ptr<Writer> writer_;
  const Source source_;
};

absl::StatusOr<std::unique_ptr<Log>> Log::Start(int fd, LogOptions options) {
  auto writer =
      std::make_shared<Writer>(fcntl(fd, F_DUPFD_CLOEXEC, 3), options.format);
  try {
    std::thread([writer] { writer->Run(); }).detach();
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("cannot start a thread for the log");
  }
  return std::unique_ptr<Log>(new Log(std::move(writer), options));
}

Log::Log(std::shared_ptr<Writer> writer, LogOptions options)
    : options_(options), writer_(std::move(writer)) {
  for (int i = 0; i < kLogSources; ++i) {
    loggers_[i] = std::make_unique<spdlog::logger>(
        "", std::make_shared<Sink>(writer_, static_cast<Source>(i)));
    loggers_[i]->set_level(SpdlogLevel(options.level));
  }
}
Log::~Log() { writer_->Stop(); }

void Log::Write(const LogLine& line, Source source) {
  if (line.level < options_.level) return;
  loggers_[static_cast<size_t>(source)]->log(SpdlogLevel(line.level),
                                             LineText(line, options_.format));
}
void Log::LeftOut(Source source, int64_t lines) {
  writer_->LeftOut(source, lines);
}
LogStats Log::stats() const { return writer_->stats(); }
bool Log::Flush(absl::Duration limit) { return writer_->Flush(limit); }

}  // namespace attnd::server
