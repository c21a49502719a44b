#include "tests/certificates.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/tls/openssl.h"

namespace attnd::testing {
namespace {

using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Number = std::unique_ptr<BIGNUM, Free<BN_free>>;

void Require(bool good, absl::string_view what) {
  if (good) return;
  const std::string text(what);
  std::fprintf(stderr, "certificates: %s\n", text.c_str());
  ERR_print_errors_fp(stderr);
  std::abort();
}

KeyPtr MakeKey(KeyKind kind) {
  KeyPtr key(kind == KeyKind::kEcP256
                 ? EVP_EC_gen("P-256")
                 : EVP_RSA_gen(static_cast<unsigned int>(2048)));
  Require(key != nullptr, "no key");
  return key;
}

template <typename Write>
std::string ToPem(Write write) {
  const BioPtr memory(BIO_new(BIO_s_mem()));
  Require(memory != nullptr && write(memory.get()) == 1, "no PEM");
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(memory.get(), &bytes);
  return std::string(bytes, size);
}

std::string ToPem(EVP_PKEY* key) {
  return ToPem([key](BIO* to) {
    return PEM_write_bio_PKCS8PrivateKey(to, key, nullptr, nullptr, 0, nullptr,
                                         nullptr);
  });
}

std::string ToPem(X509* certificate) {
  return ToPem(
      [certificate](BIO* to) { return PEM_write_bio_X509(to, certificate); });
}

BioPtr Reader(const std::string& pem) {
  BioPtr memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Require(memory != nullptr, "no memory");
  return memory;
}

KeyPtr KeyOf(const Identity& identity) {
  KeyPtr key(PEM_read_bio_PrivateKey(Reader(identity.key).get(), nullptr,
                                     nullptr, nullptr));
  Require(key != nullptr, "the issuer's key is none");
  return key;
}

// The first of the chain.
X509Ptr CertificateOf(const Identity& identity) {
  X509Ptr certificate(PEM_read_bio_X509(Reader(identity.chain).get(), nullptr,
                                        nullptr, nullptr));
  Require(certificate != nullptr, "the issuer's certificate is none");
  return certificate;
}

bool SignedItself(X509* certificate) {
  return X509_NAME_cmp(X509_get_subject_name(certificate),
                       X509_get_issuer_name(certificate)) == 0;
}

void AddExtension(X509* certificate, X509* issuer, int id,
                  const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(
      X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  Require(extension != nullptr, absl::StrCat("no extension ", value));
  Require(X509_add_ext(certificate, extension.get(), -1) == 1, value);
}

std::string SubjectNames(const CertificateOptions& options) {
  std::vector<std::string> names;
  for (const auto& name : options.dns) names.push_back("DNS:" + name);
  for (const auto& name : options.ips) names.push_back("IP:" + name);
  for (const auto& name : options.uris) names.push_back("URI:" + name);
  return absl::StrJoin(names, ",");
}

// Random: two certificates of an issuer never share one.
void SetSerialNumber(X509* certificate) {
  const Number number(BN_new());
  Require(number != nullptr &&
              BN_rand(number.get(), 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) ==
                  1 &&
              BN_to_ASN1_INTEGER(number.get(),
                                 X509_get_serialNumber(certificate)) != nullptr,
          "no serial number");
}

// Everything but the issuer's signature; `issuer` may be the certificate.
void Fill(X509* certificate, X509* issuer, const CertificateOptions& options,
          EVP_PKEY* key) {
  Require(X509_set_version(certificate, X509_VERSION_3) == 1, "no version");
  SetSerialNumber(certificate);
  X509_gmtime_adj(X509_getm_notBefore(certificate),
                  absl::ToInt64Seconds(options.starts));
  X509_gmtime_adj(X509_getm_notAfter(certificate),
                  absl::ToInt64Seconds(options.ends));
  Require(X509_set_pubkey(certificate, key) == 1, "no public key");
  X509_NAME* const subject = X509_get_subject_name(certificate);
  Require(options.common_name.empty() ||
              X509_NAME_add_entry_by_NID(
                  subject, NID_commonName, MBSTRING_UTF8,
                  reinterpret_cast<const unsigned char*>(
                      options.common_name.data()),
                  static_cast<int>(options.common_name.size()), -1, 0) == 1,
          "no common name");
  Require(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1,
          "no issuer");
  AddExtension(certificate, issuer, NID_basic_constraints,
               options.authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  AddExtension(certificate, issuer, NID_key_usage,
               options.authority ? "critical,keyCertSign,cRLSign"
                                 : "critical,digitalSignature,keyEncipherment");
  AddExtension(certificate, issuer, NID_subject_key_identifier, "hash");
  if (!options.authority) {
    AddExtension(certificate, issuer, NID_ext_key_usage,
                 "serverAuth,clientAuth");
  }
  const std::string names = SubjectNames(options);
  if (!names.empty()) {
    AddExtension(certificate, issuer, NID_subject_alt_name, names);
  }
}

void Sign(X509* certificate, EVP_PKEY* issuer_key) {
  Require(X509_sign(certificate, issuer_key, EVP_sha256()) > 0, "no signature");
}

}  // namespace

Identity SelfSigned(const CertificateOptions& options) {
  const KeyPtr key = MakeKey(options.key);
  const X509Ptr certificate(X509_new());
  Fill(certificate.get(), certificate.get(), options, key.get());
  Sign(certificate.get(), key.get());
  return {ToPem(certificate.get()), ToPem(key.get())};
}

Identity Issue(const Identity& issuer, const CertificateOptions& options) {
  const KeyPtr key = MakeKey(options.key);
  const X509Ptr parent = CertificateOf(issuer);
  const X509Ptr certificate(X509_new());
  Fill(certificate.get(), parent.get(), options, key.get());
  AddExtension(certificate.get(), parent.get(), NID_authority_key_identifier,
               "keyid:always");
  Sign(certificate.get(), KeyOf(issuer).get());
  std::string chain = ToPem(certificate.get());
  if (!SignedItself(parent.get())) absl::StrAppend(&chain, issuer.chain);
  return {std::move(chain), ToPem(key.get())};
}

Identity MakeAuthority(const std::string& common_name, KeyKind key) {
  return SelfSigned(
      {.common_name = common_name, .key = key, .authority = true});
}

Identity MakeIntermediate(const Identity& issuer,
                          const std::string& common_name) {
  return Issue(issuer, {.common_name = common_name, .authority = true});
}

void WriteIdentity(const Identity& identity, const std::string& prefix) {
  ReplaceFile(prefix + ".pem", identity.chain);
  ReplaceFile(prefix + ".key", identity.key);
}

void ReplaceFile(const std::string& path, absl::string_view text) {
  const std::string fresh = path + ".new";
  const int fd =
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  Require(fd >= 0, fresh);
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  Require(close(fd) == 0 && written, fresh);
  Require(std::rename(fresh.c_str(), path.c_str()) == 0, path);
}

}  // namespace attnd::testing
