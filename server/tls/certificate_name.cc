#include "server/tls/certificate_name.h"

#include <openssl/x509v3.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attnd::server::tls {
namespace {

constexpr size_t kLongest = 256;
constexpr absl::string_view kOfFingerprint = "sha256:";

// Empty: it is no name that can be shown and compared.
std::string Text(const ASN1_STRING* string) {
  if (string == nullptr) return "";
  const absl::string_view text(
      reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
      static_cast<size_t>(ASN1_STRING_length(string)));
  const bool is_fine =
      text.size() <= kLongest && !absl::StartsWith(text, kOfFingerprint) &&
      std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c));
      });
  return is_fine ? std::string(text) : "";
}

std::string AlternativeName(X509* certificate, int type) {
  const std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
          certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get());
       ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == type) return Text(name->d.ia5);
  }
  return "";
}

std::string CommonName(X509* certificate) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return "";
  return Text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

std::string Fingerprint(X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  X509_digest(certificate, EVP_sha256(), digest.data(), &size);
  return absl::StrCat(kOfFingerprint,
                      absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<const char*>(digest.data()), size)));
}

}  // namespace

std::string NameOf(X509* certificate) {
  std::string name = AlternativeName(certificate, GEN_URI);
  if (name.empty()) name = AlternativeName(certificate, GEN_DNS);
  if (name.empty()) name = CommonName(certificate);
  if (name.empty()) name = Fingerprint(certificate);
  TakeTlsError();
  return name;
}

}  // namespace attnd::server::tls
