#include "base/tls/openssl.h"

#include <openssl/err.h>

namespace attnd {

std::string TakeTlsError() {
  const unsigned long error = ERR_peek_last_error();  // NOLINT: OpenSSL's type
  ERR_clear_error();
  if (error == 0) return "";
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "an error without a name" : reason;
}

}  // namespace attnd
