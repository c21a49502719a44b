#ifndef ATTND_SERVER_TLS_CREDENTIALS_WATCH_H_
#define ATTND_SERVER_TLS_CREDENTIALS_WATCH_H_

// Credentials that are renewed while the server runs.

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/tls/credentials.h"

namespace attnd::server::tls {

// Thread-safe; Look() is for one thread.
class CredentialsWatch {
 public:
  // Errors are those of Credentials::Create and CredentialText::Read.
  static absl::StatusOr<std::unique_ptr<CredentialsWatch>> Start(
      const CredentialFiles& files);

  // The last that were good.
  std::shared_ptr<const Credentials> current() const;

  // Looks into the files, for what is in them and not for when they were
  // written: a link to them may have been set anew. OK: they are new, and
  // current from now on. An error: they are not good and have stayed so since
  // the last look, so that this is no pair of which one half is still to come;
  // said once. Nothing: there is nothing to say.
  std::optional<absl::Status> Look();
  // Whether the last look found what is current, or what has yet to stay as it
  // is. For the thread of Look.
  bool files_good() const { return !(fault_.has_value() && has_told_fault_); }

 private:
  CredentialsWatch(CredentialFiles files, CredentialText text,
                   std::shared_ptr<const Credentials> credentials);

  const CredentialFiles files_;
  CredentialText good_text_;
  // What the last look found to be wrong, and whether that has been said.
  std::optional<absl::Status> fault_;
  bool has_told_fault_ = false;
  mutable Mutex mutex_;
  std::shared_ptr<const Credentials> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace attnd::server::tls

#endif  // ATTND_SERVER_TLS_CREDENTIALS_WATCH_H_
