#ifndef ATTND_TESTS_SERVER_FUZZ_CERTIFICATE_CHECK_H_
#define ATTND_TESTS_SERVER_FUZZ_CERTIFICATE_CHECK_H_

#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attnd::server::tls::testing {

// Whether NameOf finds a name that can be shown and compared, and leaves no
// error behind, in a certificate of these bytes (DER), if they are one. Nothing
// of OpenSSL's takes as long as the key, so in seeds it is of no known kind.
// `*is_certificate`, unless null: whether they are.
absl::Status CheckCertificate(absl::string_view der,
                              bool* is_certificate = nullptr);

// Whether Credentials::Create takes these texts (PEM) as the server's
// certificate, key and clients' authority as it should: what it refuses it
// refuses with a flag's name and nothing of the text. `*accepted`, unless null:
// whether it took them. Takes a thousand times as long.
absl::Status CheckCredentials(absl::string_view certificate,
                              absl::string_view key,
                              absl::string_view client_ca,
                              bool* accepted = nullptr);

// `der` with an element changed, repeated or taken out, so that it is still
// made of whole elements, or a byte changed.
std::string MutateDer(std::minstd_rand& random, absl::string_view der);

// As a file has it.
std::string ToPem(absl::string_view der);

}  // namespace attnd::server::tls::testing

#endif  // ATTND_TESTS_SERVER_FUZZ_CERTIFICATE_CHECK_H_
