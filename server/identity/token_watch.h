#ifndef ATTND_SERVER_IDENTITY_TOKEN_WATCH_H_
#define ATTND_SERVER_IDENTITY_TOKEN_WATCH_H_

#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/identity/token_store.h"

namespace attnd::server {

// A thread of its own that looks after a token file, whose disk may be slow.
class TokenWatch {
 public:
  // A change is taken within two of these.
  static constexpr absl::Duration kLookEvery = absl::Milliseconds(500);

  // `store` outlives it. RESOURCE_EXHAUSTED: no thread.
  static absl::StatusOr<std::unique_ptr<TokenWatch>> Start(TokenStore& store);
  ~TokenWatch();

 private:
  explicit TokenWatch(TokenStore& store) : store_(store) {}
  void Loop();

  TokenStore& store_;
  Mutex mutex_;
  Condition stopped_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_TOKEN_WATCH_H_
