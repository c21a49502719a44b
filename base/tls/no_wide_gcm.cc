#include "base/tls/wide_gcm.h"

namespace attnd {

bool HasWideGcm() { return false; }

int InitWideGcm(const OSSL_CORE_HANDLE*, const OSSL_DISPATCH*,
                const OSSL_DISPATCH**, void**) {
  return 0;
}

}  // namespace attnd
