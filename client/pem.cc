#include "client/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "absl/strings/str_cat.h"
#include "base/tls/openssl.h"

namespace attnd::client {
namespace {

// A thread's queue of errors is OpenSSL's alone; what a check leaves in it
// would be taken for an error of whatever comes next.
class ErrorQueue {
 public:
  ErrorQueue() { ERR_clear_error(); }
  ~ErrorQueue() { ERR_clear_error(); }
  ErrorQueue(const ErrorQueue&) = delete;
  ErrorQueue& operator=(const ErrorQueue&) = delete;

  // The last error, in OpenSSL's words.
  std::string Reason() const {
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason == nullptr ? "OpenSSL says no more" : reason;
  }
  bool AtEndOfText() const {
    return ERR_GET_LIB(ERR_peek_last_error()) == ERR_LIB_PEM &&
           ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  }
};

BioPtr Reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// OpenSSL asks for a password: there is none. Without this it would ask the
// terminal.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writes*/, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

X509Ptr ReadCertificate(BIO* from) {
  return X509Ptr(PEM_read_bio_X509(from, nullptr, nullptr, nullptr));
}

KeyPtr ReadKey(const std::string& pem, bool& asked) {
  const BioPtr memory = Reader(pem);
  return KeyPtr(
      PEM_read_bio_PrivateKey(memory.get(), nullptr, &NoPassword, &asked));
}

// How often `mark` stands in `text`.
int Count(const std::string& text, const char* mark) {
  int count = 0;
  for (size_t at = text.find(mark); at != std::string::npos;
       at = text.find(mark, at + 1)) {
    ++count;
  }
  return count;
}

// A context that has the first certificate of `chain`, if OpenSSL uses it.
absl::Status Use(const std::string& chain, const ErrorQueue& errors,
                 SslContextPtr& context) {
  context.reset(SSL_CTX_new(TLS_client_method()));
  const BioPtr memory = Reader(chain);
  const X509Ptr certificate = ReadCertificate(memory.get());
  if (context != nullptr && certificate != nullptr &&
      SSL_CTX_use_certificate(context.get(), certificate.get()) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot be used: ", errors.Reason()));
}

}  // namespace

absl::Status CheckCertificates(const std::string& pem) {
  const ErrorQueue errors;
  const BioPtr memory = Reader(pem);
  int read = 0;
  while (ReadCertificate(memory.get()) != nullptr) ++read;
  // The text may end within one, too.
  if (!errors.AtEndOfText() ||
      Count(pem, "-----BEGIN ") != Count(pem, "-----END ")) {
    return absl::InvalidArgumentError(
        absl::StrCat("certificate ", read + 1, " in it is damaged"));
  }
  if (read == 0) {
    return absl::InvalidArgumentError("has no certificate in PEM");
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& pem) {
  const ErrorQueue errors;
  bool asked = false;
  if (ReadKey(pem, asked) != nullptr) return absl::OkStatus();
  if (asked) {
    return absl::InvalidArgumentError(
        "is encrypted; a key that is not is needed");
  }
  return absl::InvalidArgumentError("has no private key in PEM");
}

absl::Status CheckUsable(const std::string& chain) {
  const ErrorQueue errors;
  SslContextPtr context;
  return Use(chain, errors, context);
}

absl::Status CheckPair(const std::string& chain, const std::string& key) {
  const ErrorQueue errors;
  SslContextPtr context;
  if (absl::Status status = Use(chain, errors, context); !status.ok()) {
    return status;
  }
  bool asked = false;
  const KeyPtr read = ReadKey(key, asked);
  if (read != nullptr &&
      SSL_CTX_use_PrivateKey(context.get(), read.get()) == 1 &&
      SSL_CTX_check_private_key(context.get()) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "does not belong to the client's certificate: ", errors.Reason()));
}

}  // namespace attnd::client
