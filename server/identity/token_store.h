#ifndef ATTND_SERVER_IDENTITY_TOKEN_STORE_H_
#define ATTND_SERVER_IDENTITY_TOKEN_STORE_H_

// The tokens of a file, as it is now: read again when it has changed. A file
// that is torn, broken or gone changes nothing, so that no call with a good
// token ever fails for it.

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "base/mutex.h"
#include "server/identity/token_file.h"
#include "server/identity/token_set.h"

namespace attnd::server {

// Thread-safe, but for Look, which is for one thread at a time.
class TokenStore {
 public:
  // What a file that is broken again and again has the log say.
  static constexpr absl::Duration kLineEvery = absl::Seconds(5);

  // Reads the file. ReadTokenFile's errors, behind "--token_file: ".
  static absl::StatusOr<std::unique_ptr<TokenStore>> Open(
      const std::string& path, WriteLine write);

  // Looks whether the file has changed. A change is taken by the second look
  // that sees it as it is: who writes in place has had that long to finish.
  // `now` is MonotonicNow().
  void Look(absl::Time now);

  // Whether the file, when it was last read, was good.
  bool file_good() const { return file_good_; }
  // Those of the last good file. A call keeps them for as long as it needs.
  std::shared_ptr<const TokenSet> tokens() const;

 private:
  TokenStore(std::string path, WriteLine write, TokenFile file);
  void Take(TokenFile file);

  const std::string path_;
  const WriteLine write_;

  // Of Look alone.
  FileStamp seen_;     // by the look before
  FileStamp settled_;  // and what has been done with it, once it stayed
  std::string untold_;
  LogLevel untold_level_ = LogLevel::kInfo;
  absl::Time next_line_ = absl::InfinitePast();

  std::atomic<bool> file_good_ = true;
  mutable Mutex mutex_;
  std::shared_ptr<const TokenSet> tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_TOKEN_STORE_H_
