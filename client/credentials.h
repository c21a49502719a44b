#ifndef ATTND_CLIENT_CREDENTIALS_H_
#define ATTND_CLIENT_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "base/mutex.h"
#include "client/executor.h"

namespace attnd::client {

// How often files are read again. They are read, not looked at: times and sizes
// do not tell of all that has changed, and all files together are small.
inline constexpr absl::Duration kRenewalInterval = absl::Seconds(1);

// Whom a client trusts, and what it says it is: PEM for its connections and a
// token for its calls, from files that may be renewed. Thread-safe.
class Credentials {
 public:
  // What a connection is made with.
  struct Tls {
    std::string authorities = {};            // empty: the system's
    std::string certificate = {}, key = {};  // empty: the client shows none
    bool operator==(const Tls&) const = default;
  };

  // What `options`, which are valid, say. INVALID_ARGUMENT, naming the option:
  // a file cannot be read or does not hold what it should; TLS to a unix
  // socket; a token that others on the way to `target` could read.
  static absl::StatusOr<std::shared_ptr<Credentials>> Load(
      const std::string& target, const ClientOptions& options);

  // Null: connections are not encrypted. Another object once renewed.
  std::shared_ptr<const Tls> tls() const;
  // What each call's "authorization" says; null: nothing.
  std::shared_ptr<const std::string> authorization() const;
  // Why what the files held last is not in use; OK when it is.
  absl::Status renewal() const;

  const std::string& server_name() const { return options_.tls.server_name; }
  // Whether a token goes in clear, which it may as the connection is within
  // this host: no proxy may be part of it.
  bool stays_on_host() const { return stays_on_host_; }

  // Whether there is a file that could change.
  bool renewable() const;
  // Reads the files again, which may block for as long as the disk does.
  // Whatever Load would refuse leaves what there was.
  void Renew();

 private:
  Credentials(const ClientOptions& options, bool stays_on_host);

  // Reads all and returns `current` if that is what there is still.
  absl::StatusOr<std::shared_ptr<const Tls>> ReadTls(
      std::shared_ptr<const Tls> current) const;
  absl::StatusOr<std::string> ReadAuthorization() const;

  const ClientOptions options_;
  const bool stays_on_host_;
  mutable Mutex mutex_;
  std::shared_ptr<const Tls> tls_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> authorization_ ABSL_GUARDED_BY(mutex_);
  absl::Status renewal_ ABSL_GUARDED_BY(mutex_);
};

// Renews `credentials` every kRenewalInterval on `executor`, until that ends.
void KeepRenewed(std::shared_ptr<Credentials> credentials, Executor& executor);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CREDENTIALS_H_
