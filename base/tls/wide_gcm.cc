#include "base/tls/wide_gcm.h"

#include <intel-ipsec-mb.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace attnd {
namespace {

constexpr size_t kKeyBytes = 16, kNonceBytes = 12;
constexpr size_t kTagBytes = 16, kLeastTagBytes = 4;
// Of a nonce in TLS 1.2: what both ends know, and what a record begins with.
constexpr size_t kFixedBytes = 4, kExplicitBytes = kNonceBytes - kFixedBytes;
// More than any protocol authenticates beside its text: TLS has 13 bytes.
constexpr size_t kMostAadBytes = 1024;

// The library's functions for this processor, which keep nothing in it. Null:
// it has not what they need.
const IMB_MGR* Functions() {
  static const IMB_MGR* const functions = []() -> const IMB_MGR* {
    constexpr uint64_t kNeeded =
        IMB_FEATURE_AVX512_SKX | IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;
    IMB_MGR* made = alloc_mb_mgr(0);
    if (made == nullptr) return nullptr;
    if ((made->features & kNeeded) == kNeeded) {
      init_mb_mgr_avx512(made);
      if (imb_get_errno(made) == 0) return made;
    }
    free_mb_mgr(made);
    return nullptr;
  }();
  return functions;
}

// One EVP_CIPHER_CTX. A message is a nonce, AAD, text and a tag, in this order.
class WideGcm {
 public:
  WideGcm() = default;
  WideGcm(const WideGcm&) = default;
  WideGcm& operator=(const WideGcm&) = delete;
  ~WideGcm() { OPENSSL_cleanse(this, sizeof(*this)); }

  bool Begin(bool encrypts, const uint8_t* key, size_t key_bytes,
             const uint8_t* nonce, size_t nonce_bytes) {
    encrypts_ = encrypts;
    if (key != nullptr) {
      if (key_bytes != kKeyBytes) return false;
      IMB_AES128_GCM_PRE(Functions(), key, &key_);
      // A nonce that was there before this key was another one's.
      if (has_key_) step_ = Step::kNoNonce;
      has_key_ = true;
    }
    if (nonce != nullptr) {
      if (nonce_bytes != kNonceBytes) return false;
      std::memcpy(nonce_, nonce, kNonceBytes);
      step_ = Step::kAad;
      aad_bytes_ = 0;
    }
    return true;
  }

  // AAD if `to` is null.
  bool Update(uint8_t* to, size_t room, const uint8_t* from, size_t bytes,
              size_t& written) {
    written = 0;
    if (is_record_) return Record(to, room, from, bytes, written);
    if (!has_key_ || step_ == Step::kNoNonce) return false;
    if (to == nullptr) {
      if (step_ != Step::kAad || bytes > kMostAadBytes - aad_bytes_) {
        return false;
      }
      std::memcpy(aad_ + aad_bytes_, from, bytes);
      aad_bytes_ += bytes;
      written = bytes;
      return true;
    }
    if (room < bytes) return false;
    BeginText();
    Apply(to, from, bytes);
    written = bytes;
    return true;
  }

  // Whether the tag is right, where that is known beforehand.
  bool Finish() {
    if (!has_key_ || step_ == Step::kNoNonce) return false;
    BeginText();
    step_ = Step::kNoNonce;
    uint8_t tag[kTagBytes];
    FindTag(tag);
    if (encrypts_) {
      std::memcpy(tag_, tag, kTagBytes);
      tag_bytes_ = kTagBytes;
      return true;
    }
    return tag_bytes_ >= kLeastTagBytes &&
           CRYPTO_memcmp(tag, tag_, tag_bytes_) == 0;
  }

  bool SetTag(const uint8_t* tag, size_t bytes) {
    if (bytes < kLeastTagBytes || bytes > kTagBytes) return false;
    tag_bytes_ = bytes;
    if (tag == nullptr) return true;
    if (encrypts_) return false;
    std::memcpy(tag_, tag, bytes);
    return true;
  }
  bool GetTag(uint8_t* to, size_t bytes) const {
    if (!encrypts_ || bytes > tag_bytes_ || bytes == 0) return false;
    std::memcpy(to, tag_, bytes);
    return true;
  }
  size_t tag_bytes() const { return tag_bytes_ == 0 ? kTagBytes : tag_bytes_; }
  const uint8_t* nonce() const { return nonce_; }

  // What both ends know of the nonces of TLS 1.2. Those of a sender count up
  // from a random one.
  bool SetFixed(const uint8_t* fixed, size_t bytes) {
    if (bytes != kFixedBytes) return false;
    std::memcpy(nonce_, fixed, kFixedBytes);
    return !encrypts_ || RAND_bytes(nonce_ + kFixedBytes, kExplicitBytes) == 1;
  }

  // A record's header, as TLS 1.2 authenticates it: its length here is what
  // OpenSSL knows of it, with the explicit nonce, and with a tag if there is
  // one to be checked. The next update is that record.
  bool SetHeader(const uint8_t* header, size_t bytes) {
    if (bytes != EVP_AEAD_TLS1_AAD_LEN) return false;
    size_t length = size_t{header[bytes - 2]} << 8 | header[bytes - 1];
    const size_t others = kExplicitBytes + (encrypts_ ? 0 : kTagBytes);
    if (length < others) return false;
    length -= others;
    std::memcpy(aad_, header, bytes);
    aad_[bytes - 2] = static_cast<uint8_t>(length >> 8);
    aad_[bytes - 1] = static_cast<uint8_t>(length);
    aad_bytes_ = bytes;
    is_record_ = true;
    return true;
  }

 private:
  enum class Step { kNoNonce, kAad, kText };

  void BeginText() {
    if (step_ != Step::kAad) return;
    IMB_AES128_GCM_INIT(Functions(), &key_, &message_, nonce_, aad_,
                        aad_bytes_);
    step_ = Step::kText;
  }
  void Apply(uint8_t* to, const uint8_t* from, size_t bytes) {
    if (encrypts_) {
      IMB_AES128_GCM_ENC_UPDATE(Functions(), &key_, &message_, to, from, bytes);
    } else {
      IMB_AES128_GCM_DEC_UPDATE(Functions(), &key_, &message_, to, from, bytes);
    }
  }
  void FindTag(uint8_t* tag) {
    if (encrypts_) {
      IMB_AES128_GCM_ENC_FINALIZE(Functions(), &key_, &message_, tag,
                                  kTagBytes);
    } else {
      IMB_AES128_GCM_DEC_FINALIZE(Functions(), &key_, &message_, tag,
                                  kTagBytes);
    }
  }

  // A whole record of TLS 1.2 in its place: an explicit nonce, text and a tag.
  bool Record(uint8_t* record, size_t room, const uint8_t* from, size_t bytes,
              size_t& written) {
    is_record_ = false;
    if (!has_key_ || record == nullptr || record != from || room < bytes ||
        bytes < kExplicitBytes + kTagBytes) {
      return false;
    }
    uint8_t* const text = record + kExplicitBytes;
    const size_t text_bytes = bytes - kExplicitBytes - kTagBytes;
    if (encrypts_) {
      std::memcpy(record, nonce_ + kFixedBytes, kExplicitBytes);
    } else {
      std::memcpy(nonce_ + kFixedBytes, record, kExplicitBytes);
      tag_bytes_ = kTagBytes;
      std::memcpy(tag_, text + text_bytes, kTagBytes);
    }
    step_ = Step::kAad;
    BeginText();
    Apply(text, text, text_bytes);
    if (!Finish()) {
      OPENSSL_cleanse(text, text_bytes);
      return false;
    }
    if (!encrypts_) {
      written = text_bytes;
      return true;
    }
    std::memcpy(text + text_bytes, tag_, kTagBytes);
    CountUp();
    written = bytes;
    return true;
  }
  void CountUp() {
    for (size_t i = kNonceBytes; i-- > kFixedBytes;) {
      if (++nonce_[i] != 0) return;
    }
  }

  gcm_key_data key_ = {};
  gcm_context_data message_ = {};
  uint8_t nonce_[kNonceBytes] = {};
  uint8_t aad_[kMostAadBytes] = {};
  size_t aad_bytes_ = 0;
  uint8_t tag_[kTagBytes] = {};
  size_t tag_bytes_ = 0;  // 0: none was set or found
  Step step_ = Step::kNoNonce;
  bool encrypts_ = true, has_key_ = false;
  bool is_record_ = false;  // what comes next, of TLS 1.2
};

// What OpenSSL calls.

WideGcm& Of(void* context) { return *static_cast<WideGcm*>(context); }

void* New(void*) { return new (std::nothrow) WideGcm; }
void Delete(void* context) { delete static_cast<WideGcm*>(context); }
void* Copy(void* context) { return new (std::nothrow) WideGcm(Of(context)); }

int SetParams(void* context, const OSSL_PARAM* params) {
  if (params == nullptr) return 1;
  const auto bytes_of = [&](const char* name) -> const OSSL_PARAM* {
    return OSSL_PARAM_locate_const(params, name);
  };
  const auto data = [](const OSSL_PARAM* param) {
    return static_cast<const uint8_t*>(param->data);
  };
  WideGcm& gcm = Of(context);
  if (const auto* tag = bytes_of(OSSL_CIPHER_PARAM_AEAD_TAG)) {
    if (!gcm.SetTag(data(tag), tag->data_size)) return 0;
  }
  if (const auto* nonce = bytes_of(OSSL_CIPHER_PARAM_AEAD_IVLEN)) {
    size_t bytes = 0;
    if (OSSL_PARAM_get_size_t(nonce, &bytes) != 1 || bytes != kNonceBytes) {
      return 0;
    }
  }
  if (const auto* fixed = bytes_of(OSSL_CIPHER_PARAM_AEAD_TLS1_IV_FIXED)) {
    if (!gcm.SetFixed(data(fixed), fixed->data_size)) return 0;
  }
  if (const auto* header = bytes_of(OSSL_CIPHER_PARAM_AEAD_TLS1_AAD)) {
    if (!gcm.SetHeader(data(header), header->data_size)) return 0;
  }
  return 1;
}

template <bool kEncrypts>
int Begin(void* context, const unsigned char* key, size_t key_bytes,
          const unsigned char* nonce, size_t nonce_bytes,
          const OSSL_PARAM* params) {
  return Of(context).Begin(kEncrypts, key, key_bytes, nonce, nonce_bytes) &&
                 SetParams(context, params) == 1
             ? 1
             : 0;
}

int Update(void* context, unsigned char* to, size_t* written, size_t room,
           const unsigned char* from, size_t bytes) {
  return Of(context).Update(to, room, from, bytes, *written) ? 1 : 0;
}

int Finish(void* context, unsigned char*, size_t* written, size_t) {
  *written = 0;
  return Of(context).Finish() ? 1 : 0;
}

// EVP_Cipher(): an update, or without input the end.
int Either(void* context, unsigned char* to, size_t* written, size_t room,
           const unsigned char* from, size_t bytes) {
  return from == nullptr ? Finish(context, to, written, room)
                         : Update(context, to, written, room, from, bytes);
}

// Sets those of `params` that have the name; false if one of them cannot be.
template <class Set>
bool Give(OSSL_PARAM* params, const char* name, Set set) {
  OSSL_PARAM* const param = OSSL_PARAM_locate(params, name);
  return param == nullptr || set(param);
}
bool GiveSize(OSSL_PARAM* params, const char* name, size_t value) {
  return Give(params, name, [&](OSSL_PARAM* param) {
    return OSSL_PARAM_set_size_t(param, value) == 1;
  });
}

int GetParams(OSSL_PARAM* params) {
  const auto give_flag = [&](const char* name) {
    return Give(params, name, [](OSSL_PARAM* param) {
      return OSSL_PARAM_set_int(param, 1) == 1;
    });
  };
  return Give(params, OSSL_CIPHER_PARAM_MODE,
              [](OSSL_PARAM* param) {
                return OSSL_PARAM_set_uint(param, EVP_CIPH_GCM_MODE) == 1;
              }) &&
                 GiveSize(params, OSSL_CIPHER_PARAM_KEYLEN, kKeyBytes) &&
                 GiveSize(params, OSSL_CIPHER_PARAM_IVLEN, kNonceBytes) &&
                 GiveSize(params, OSSL_CIPHER_PARAM_BLOCK_SIZE, 1) &&
                 give_flag(OSSL_CIPHER_PARAM_AEAD) &&
                 give_flag(OSSL_CIPHER_PARAM_CUSTOM_IV)
             ? 1
             : 0;
}

int GetContextParams(void* context, OSSL_PARAM* params) {
  WideGcm& gcm = Of(context);
  const auto give_nonce = [&](const char* name) {
    return Give(params, name, [&](OSSL_PARAM* param) {
      return OSSL_PARAM_set_octet_string(param, gcm.nonce(), kNonceBytes) == 1;
    });
  };
  return GiveSize(params, OSSL_CIPHER_PARAM_KEYLEN, kKeyBytes) &&
                 GiveSize(params, OSSL_CIPHER_PARAM_IVLEN, kNonceBytes) &&
                 GiveSize(params, OSSL_CIPHER_PARAM_AEAD_TAGLEN,
                          gcm.tag_bytes()) &&
                 GiveSize(params, OSSL_CIPHER_PARAM_AEAD_TLS1_AAD_PAD,
                          kTagBytes) &&
                 give_nonce(OSSL_CIPHER_PARAM_IV) &&
                 give_nonce(OSSL_CIPHER_PARAM_UPDATED_IV) &&
                 Give(params, OSSL_CIPHER_PARAM_AEAD_TAG,
                      [&](OSSL_PARAM* param) {
                        param->return_size = param->data_size;
                        return gcm.GetTag(static_cast<uint8_t*>(param->data),
                                          param->data_size);
                      })
             ? 1
             : 0;
}

const OSSL_PARAM* Gettable(void*) {
  static constexpr OSSL_PARAM kParams[] = {
      OSSL_PARAM_uint(OSSL_CIPHER_PARAM_MODE, nullptr),
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_KEYLEN, nullptr),
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_IVLEN, nullptr),
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_BLOCK_SIZE, nullptr),
      OSSL_PARAM_int(OSSL_CIPHER_PARAM_AEAD, nullptr),
      OSSL_PARAM_int(OSSL_CIPHER_PARAM_CUSTOM_IV, nullptr),
      OSSL_PARAM_END};
  return kParams;
}
const OSSL_PARAM* GettableOfContext(void*, void*) {
  static constexpr OSSL_PARAM kParams[] = {
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_KEYLEN, nullptr),
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_IVLEN, nullptr),
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_AEAD_TAGLEN, nullptr),
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_AEAD_TLS1_AAD_PAD, nullptr),
      OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_IV, nullptr, 0),
      OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_UPDATED_IV, nullptr, 0),
      OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, nullptr, 0),
      OSSL_PARAM_END};
  return kParams;
}
const OSSL_PARAM* SettableOfContext(void*, void*) {
  static constexpr OSSL_PARAM kParams[] = {
      OSSL_PARAM_size_t(OSSL_CIPHER_PARAM_AEAD_IVLEN, nullptr),
      OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, nullptr, 0),
      OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TLS1_AAD, nullptr, 0),
      OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TLS1_IV_FIXED, nullptr, 0),
      OSSL_PARAM_END};
  return kParams;
}

template <class Function>
OSSL_DISPATCH Entry(int id, Function* function) {
  return {id, reinterpret_cast<void (*)()>(function)};
}

const OSSL_ALGORITHM* Algorithms(void*, int operation, int* no_cache) {
  static const OSSL_DISPATCH kFunctions[] = {
      Entry(OSSL_FUNC_CIPHER_NEWCTX, New),
      Entry(OSSL_FUNC_CIPHER_FREECTX, Delete),
      Entry(OSSL_FUNC_CIPHER_DUPCTX, Copy),
      Entry(OSSL_FUNC_CIPHER_ENCRYPT_INIT, Begin<true>),
      Entry(OSSL_FUNC_CIPHER_DECRYPT_INIT, Begin<false>),
      Entry(OSSL_FUNC_CIPHER_UPDATE, Update),
      Entry(OSSL_FUNC_CIPHER_FINAL, Finish),
      Entry(OSSL_FUNC_CIPHER_CIPHER, Either),
      Entry(OSSL_FUNC_CIPHER_GET_PARAMS, GetParams),
      Entry(OSSL_FUNC_CIPHER_GET_CTX_PARAMS, GetContextParams),
      Entry(OSSL_FUNC_CIPHER_SET_CTX_PARAMS, SetParams),
      Entry(OSSL_FUNC_CIPHER_GETTABLE_PARAMS, Gettable),
      Entry(OSSL_FUNC_CIPHER_GETTABLE_CTX_PARAMS, GettableOfContext),
      Entry(OSSL_FUNC_CIPHER_SETTABLE_CTX_PARAMS, SettableOfContext),
      {0, nullptr}};
  // By its names elsewhere, and what NIST calls it.
  static const OSSL_ALGORITHM kAlgorithms[] = {
      {"AES-128-GCM:id-aes128-GCM:2.16.840.1.101.3.4.1.6",
       "provider=attnd-wide-gcm", kFunctions, "AES-128-GCM by VAES"},
      {nullptr, nullptr, nullptr, nullptr}};
  *no_cache = 0;
  return operation == OSSL_OP_CIPHER ? kAlgorithms : nullptr;
}

}  // namespace

bool HasWideGcm() { return Functions() != nullptr; }

int InitWideGcm(const OSSL_CORE_HANDLE*, const OSSL_DISPATCH*,
                const OSSL_DISPATCH** functions, void** provider) {
  static const OSSL_DISPATCH kFunctions[] = {
      Entry(OSSL_FUNC_PROVIDER_QUERY_OPERATION, Algorithms), {0, nullptr}};
  if (!HasWideGcm()) return 0;
  *functions = kFunctions;
  *provider = const_cast<OSSL_DISPATCH*>(kFunctions);  // no state, not null
  return 1;
}

}  // namespace attnd
