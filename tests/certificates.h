#ifndef ATTND_TESTS_CERTIFICATES_H_
#define ATTND_TESTS_CERTIFICATES_H_

// Certificates and keys for tests, made as they are needed: good ones, and ones
// that have expired, are nobody's or another's. For tests in other languages
// there is a program, make_certificate.cc.
//
//   const Identity ca = MakeAuthority("test CA");
//   const Identity server = Issue(ca, {.dns = {"localhost"},
//                                      .ips = {"127.0.0.1"}});
//   WriteIdentity(server, folder.File("server"));  // server.pem, server.key
//
// A function aborts the process where its arguments make no certificate.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace attnd::testing {

enum class KeyKind { kEcP256, kRsa2048 };

// A private key, and the certificate of its public half.
struct Identity {
  // PEM. The certificate, then those of the authorities between it and the one
  // that signed itself, which its verifier has.
  std::string chain;
  std::string key;  // PEM, PKCS #8, not encrypted
};

struct CertificateOptions {
  std::string common_name = "attnd test";
  // Names of the subject besides.
  std::vector<std::string> dns = {};   // "localhost"
  std::vector<std::string> ips = {};   // "127.0.0.1", "::1"
  std::vector<std::string> uris = {};  // "spiffe://cluster/trainer"
  // When it is valid, from now on.
  absl::Duration starts = -absl::Hours(1);
  absl::Duration ends = absl::Hours(24);
  KeyKind key = KeyKind::kEcP256;
  bool authority = false;  // whether it may sign others
};

// Signed by itself: an authority's, or that of nobody one has heard of.
Identity SelfSigned(const CertificateOptions& options);

// Signed by `issuer`, which need not be an authority: the verifier's to notice.
Identity Issue(const Identity& issuer, const CertificateOptions& options);

// An authority that signed itself, and one that `issuer` signed.
Identity MakeAuthority(const std::string& common_name,
                       KeyKind key = KeyKind::kEcP256);
Identity MakeIntermediate(const Identity& issuer,
                          const std::string& common_name);

// Writes `prefix`.pem (the chain) and `prefix`.key (for its owner alone). Each
// takes its place at once, as of a program that renews certificates: whoever
// reads sees the old file or the new one.
void WriteIdentity(const Identity& identity, const std::string& prefix);
// The same for one file of any text.
void ReplaceFile(const std::string& path, absl::string_view text);

}  // namespace attnd::testing

#endif  // ATTND_TESTS_CERTIFICATES_H_
