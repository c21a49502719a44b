#include "client/credential_flags.h"

#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

constexpr std::array<std::pair<absl::string_view, absl::string_view>, 6>
    kFlagOf = {{{"tls.enabled", "--tls"},
                {"tls.ca_file", "--tls_ca"},
                {"tls.certificate_file", "--tls_cert"},
                {"tls.key_file", "--tls_key"},
                {"tls.server_name", "--tls_server_name"},
                {"token_file", "--token_file"}}};

}  // namespace

void CredentialFlags::Add(CLI::App& app, const std::string& group) {
  app.add_flag("--tls", tls,
               "Over TCP: encrypt, and check the server's certificate; implied "
               "by the other --tls_ flags")
      ->group(group);
  app.add_option("--tls_ca", tls_ca,
                 "PEM of the authorities (CA) to trust, instead of the "
                 "system's")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tls_cert", tls_cert,
                 "PEM of a certificate to show to a server that asks for one, "
                 "with --tls_key")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tls_key", tls_key, "PEM of its private key")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--tls_server_name", tls_server_name,
                 "The name that the server's certificate must have; by default "
                 "the host connected to")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--token_file", token_file,
                 "A file with a token, sent with each call; needs TLS, a unix "
                 "socket or a server on this host")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--insecure_token", insecure_token,
               "Send the token to other hosts without TLS as well: whoever is "
               "on the way can read it")
      ->group(group);
}

void CredentialFlags::Apply(ClientOptions& options) const {
  options.tls.ca_file = tls_ca;
  options.tls.certificate_file = tls_cert;
  options.tls.key_file = tls_key;
  options.tls.server_name = tls_server_name;
  options.tls.enabled = tls || !tls_ca.empty() || !tls_cert.empty() ||
                        !tls_key.empty() || !tls_server_name.empty();
  options.token_file = token_file;
  options.insecure_token = insecure_token;
}

absl::Status NameFlag(const absl::Status& status) {
  for (const auto& [option, flag] : kFlagOf) {
    absl::string_view rest = status.message();
    if (absl::ConsumePrefix(&rest, option) &&
        absl::ConsumePrefix(&rest, ": ")) {
      return wire::FieldError(flag, rest);
    }
  }
  return status;
}

}  // namespace attnd::client
