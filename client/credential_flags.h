#ifndef ATTND_CLIENT_CREDENTIAL_FLAGS_H_
#define ATTND_CLIENT_CREDENTIAL_FLAGS_H_

// The flags by which the programs trust a server and say who they are.

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "attnd/client.h"

namespace attnd::client {

struct CredentialFlags {
  bool tls = false;
  std::string tls_ca, tls_cert, tls_key, tls_server_name;
  // There is no flag for the token itself: whoever lists the host's processes
  // sees their arguments.
  std::string token_file;
  bool insecure_token = false;

  // Adds them to `app`, in `group` of its help.
  void Add(CLI::App& app, const std::string& group);
  // Sets what they say; any --tls_* enables TLS.
  void Apply(ClientOptions& options) const;
};

// An error of Client::Create, with the flag in place of the option that it
// names, if there is one.
absl::Status NameFlag(const absl::Status& status);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_CREDENTIAL_FLAGS_H_
