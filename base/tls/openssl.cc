#include "base/tls/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

namespace attnd {
namespace {

BioPtr Reader(const std::string& pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

std::string TakeTlsError() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT: OpenSSL's type
  ERR_clear_error();
  if (error == 0) return "";
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "an error without a name" : reason;
}

std::vector<X509Ptr> ReadCertificates(const std::string& pem) {
  std::vector<X509Ptr> all;
  const BioPtr reader = Reader(pem);
  while (X509* one =
             PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    all.emplace_back(one);
  }
  return all;
}

KeyPtr ReadPrivateKey(const std::string& pem) {
  return KeyPtr(
      PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, NoPassword, nullptr));
}

}  // namespace attnd
