#ifndef ATTND_BASE_TLS_WIDE_GCM_H_
#define ATTND_BASE_TLS_WIDE_GCM_H_

// AES-128-GCM for OpenSSL by Intel's Multi-Buffer Crypto for IPsec, whose code
// encrypts four blocks at once where a processor can (VAES, VPCLMULQDQ and
// AVX-512): 21 GB/s on one core that does 5 by OpenSSL 3.0. OpenSSL has such
// code of its own from 3.1 on.

#include <openssl/core.h>

namespace attnd {

// Whether this processor can, and attnd was built with the library.
bool HasWideGcm();

// What a provider of it is called, and, if HasWideGcm(), its entry
// (OSSL_provider_init_fn). It has that one algorithm, with nonces of 12 bytes
// and tags of 4 to 16, as TLS 1.2 and 1.3 use it and as any caller of
// EVP_Cipher* may.
inline constexpr char kWideGcmProvider[] = "attnd-wide-gcm";
int InitWideGcm(const OSSL_CORE_HANDLE* core, const OSSL_DISPATCH* from_core,
                const OSSL_DISPATCH** functions, void** provider);

}  // namespace attnd

#endif  // ATTND_BASE_TLS_WIDE_GCM_H_
