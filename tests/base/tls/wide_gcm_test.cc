#include "base/tls/wide_gcm.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/provider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "base/tls/openssl.h"
#include "gtest/gtest.h"

namespace attnd {
namespace {

using CipherPtr = std::unique_ptr<EVP_CIPHER, Free<EVP_CIPHER_free>>;
using ContextPtr = std::unique_ptr<EVP_CIPHER_CTX, Free<EVP_CIPHER_CTX_free>>;
using LibraryPtr = std::unique_ptr<OSSL_LIB_CTX, Free<OSSL_LIB_CTX_free>>;
using ProviderPtr = std::unique_ptr<OSSL_PROVIDER, Free<OSSL_PROVIDER_unload>>;

constexpr size_t kTagBytes = 16;

struct Message {
  std::string key, nonce, aad, text;
};
struct Sealed {
  std::string text, tag;

  friend bool operator==(const Sealed&, const Sealed&) = default;
};

unsigned char* Bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}
const unsigned char* Bytes(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

class WideGcmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasWideGcm()) GTEST_SKIP() << "this processor has no VAES";
    ASSERT_EQ(OSSL_PROVIDER_add_builtin(library_.get(), kWideGcmProvider,
                                        InitWideGcm),
              1);
    provider_.reset(OSSL_PROVIDER_load(library_.get(), kWideGcmProvider));
    ASSERT_NE(provider_, nullptr);
    wide_.reset(EVP_CIPHER_fetch(library_.get(), "AES-128-GCM", nullptr));
    ASSERT_NE(wide_, nullptr);
    openssl_.reset(EVP_CIPHER_fetch(nullptr, "AES-128-GCM", nullptr));
  }

  std::string Random(size_t bytes) {
    std::string text(bytes, '\0');
    for (char& byte : text) byte = static_cast<char>(random_());
    return text;
  }
  size_t Below(size_t end) { return random_() % end; }

  Message RandomMessage() {
    // Blocks, records and what lies just beside them, AAD of TLS too.
    static constexpr size_t kSizes[] = {0,   1,   15,  16,   17,    255,
                                        256, 257, 768, 4095, 16384, 16401};
    size_t bytes = kSizes[Below(std::size(kSizes))];
    if (Below(2) == 0) bytes = Below(70000);
    return {Random(16), Random(12), Random(Below(3) == 0 ? 5 : Below(1025)),
            Random(bytes)};
  }

  // Text of `from` through the cipher, in updates of random sizes, or in one
  // where it lies. None: a call failed.
  std::optional<std::string> Run(EVP_CIPHER_CTX* context,
                                 const std::string& aad,
                                 const std::string& from) {
    int written = 0;
    for (size_t done = 0; done < aad.size();) {
      const size_t some = 1 + Below(aad.size() - done);
      if (EVP_CipherUpdate(context, nullptr, &written, Bytes(aad) + done,
                           static_cast<int>(some)) != 1) {
        return std::nullopt;
      }
      done += some;
    }
    std::string to = from;
    const bool in_place = Below(2) == 0;
    for (size_t done = 0; done < from.size();) {
      const size_t some =
          Below(3) == 0 ? from.size() - done : 1 + Below(from.size() - done);
      if (EVP_CipherUpdate(context, Bytes(to) + done, &written,
                           (in_place ? Bytes(to) : Bytes(from)) + done,
                           static_cast<int>(some)) != 1 ||
          written != static_cast<int>(some)) {
        return std::nullopt;
      }
      done += some;
    }
    return to;
  }

  std::optional<Sealed> Seal(const EVP_CIPHER* cipher, EVP_CIPHER_CTX* context,
                             const Message& message) {
    if (EVP_CipherInit_ex2(context, cipher, Bytes(message.key), nullptr, 1,
                           nullptr) != 1 ||
        EVP_CipherInit_ex2(context, nullptr, nullptr, Bytes(message.nonce), -1,
                           nullptr) != 1) {
      return std::nullopt;
    }
    std::optional<std::string> text = Run(context, message.aad, message.text);
    int written = 0;
    unsigned char none[kTagBytes];
    Sealed sealed;
    sealed.tag.resize(kTagBytes);
    if (!text.has_value() || EVP_CipherFinal_ex(context, none, &written) != 1 ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                            sealed.tag.data()) != 1) {
      return std::nullopt;
    }
    sealed.text = *std::move(text);
    return sealed;
  }

  // None: it is not what was sealed.
  std::optional<std::string> Open(const EVP_CIPHER* cipher,
                                  EVP_CIPHER_CTX* context,
                                  const Message& message, Sealed sealed) {
    if (EVP_CipherInit_ex2(context, cipher, Bytes(message.key),
                           Bytes(message.nonce), 0, nullptr) != 1 ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG,
                            static_cast<int>(sealed.tag.size()),
                            sealed.tag.data()) != 1) {
      return std::nullopt;
    }
    std::optional<std::string> text = Run(context, message.aad, sealed.text);
    int written = 0;
    unsigned char none[kTagBytes];
    if (!text.has_value() || EVP_CipherFinal_ex(context, none, &written) != 1) {
      return std::nullopt;
    }
    return text;
  }

  const LibraryPtr library_{OSSL_LIB_CTX_new()};
  ProviderPtr provider_;
  CipherPtr wide_, openssl_;
  ContextPtr context_{EVP_CIPHER_CTX_new()}, other_{EVP_CIPHER_CTX_new()};
  std::mt19937 random_{7};
};

TEST_F(WideGcmTest, IsOpenSslsToTheBit) {
  for (int i = 0; i < 500; ++i) {
    const Message message = RandomMessage();
    const auto sealed = Seal(wide_.get(), context_.get(), message);
    ASSERT_TRUE(sealed.has_value()) << i;
    ASSERT_EQ(sealed, Seal(openssl_.get(), other_.get(), message)) << i;
    ASSERT_EQ(Open(wide_.get(), context_.get(), message, *sealed), message.text)
        << i;
  }
}

TEST_F(WideGcmTest, WhatHasChangedIsRefused) {
  for (int i = 0; i < 200; ++i) {
    const Message message = RandomMessage();
    const Sealed sealed = *Seal(wide_.get(), context_.get(), message);
    const auto flip = [&](std::string& text) {
      if (text.empty()) return false;
      text[Below(text.size())] ^= static_cast<char>(1 << Below(8));
      return true;
    };
    Sealed changed = sealed;
    flip(changed.tag);
    EXPECT_EQ(Open(wide_.get(), context_.get(), message, changed),
              std::nullopt);
    changed = sealed;
    if (flip(changed.text)) {
      EXPECT_EQ(Open(wide_.get(), context_.get(), message, changed),
                std::nullopt);
    }
    Message other = message;
    flip(other.key);
    EXPECT_EQ(Open(wide_.get(), context_.get(), other, sealed), std::nullopt);
    other = message;
    flip(other.nonce);
    EXPECT_EQ(Open(wide_.get(), context_.get(), other, sealed), std::nullopt);
    other = message;
    if (flip(other.aad)) {
      EXPECT_EQ(Open(wide_.get(), context_.get(), other, sealed), std::nullopt);
    }
  }
}

// As NewTlsContext asks for it: this one where OpenSSL's own is there as well,
// and OpenSSL's of what this one has not.
TEST_F(WideGcmTest, IsPreferredByItsName) {
  const ProviderPtr openssls(OSSL_PROVIDER_load(library_.get(), "default"));
  ASSERT_NE(openssls, nullptr);
  const std::string preferred = std::string("?provider=") + kWideGcmProvider;
  const auto provider_of = [&](const char* algorithm) -> std::string {
    const CipherPtr cipher(
        EVP_CIPHER_fetch(library_.get(), algorithm, preferred.c_str()));
    if (cipher == nullptr) return "none";
    return OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(cipher.get()));
  };
  EXPECT_EQ(provider_of("AES-128-GCM"), kWideGcmProvider);
  EXPECT_EQ(provider_of("AES-256-GCM"), "default");
}

// A nonce is of one message: none begins without one of its own, and nothing is
// encrypted without a key.
TEST_F(WideGcmTest, ANonceIsUsedOnce) {
  const Message message = {Random(16), Random(12), "", Random(100)};
  int written = 0;
  std::string to(200, '\0');
  const auto update = [&] {
    return EVP_CipherUpdate(context_.get(), Bytes(to), &written,
                            Bytes(message.text), 100);
  };
  ASSERT_EQ(EVP_CipherInit_ex2(context_.get(), wide_.get(), nullptr,
                               Bytes(message.nonce), 1, nullptr),
            1);
  EXPECT_EQ(update(), 0);  // no key
  ASSERT_EQ(EVP_CipherInit_ex2(context_.get(), nullptr, Bytes(message.key),
                               nullptr, 1, nullptr),
            1);
  EXPECT_EQ(update(), 1);  // the nonce came before the key
  EXPECT_EQ(EVP_CipherFinal_ex(context_.get(), Bytes(to), &written), 1);
  EXPECT_EQ(update(), 0);
  EXPECT_EQ(EVP_CipherFinal_ex(context_.get(), Bytes(to), &written), 0);
  // Nor with another key.
  ASSERT_EQ(EVP_CipherInit_ex2(context_.get(), nullptr, Bytes(message.key),
                               Bytes(message.nonce), 1, nullptr),
            1);
  ASSERT_EQ(EVP_CipherInit_ex2(context_.get(), nullptr, Bytes(message.key),
                               nullptr, 1, nullptr),
            1);
  EXPECT_EQ(update(), 0);
}

TEST_F(WideGcmTest, TakesNoOtherSizes) {
  const Message message = {Random(16), Random(12), "", ""};
  ASSERT_EQ(EVP_CipherInit_ex2(context_.get(), wide_.get(), Bytes(message.key),
                               nullptr, 0, nullptr),
            1);
  EXPECT_NE(
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_IVLEN, 16, nullptr),
      1);
  EXPECT_EQ(
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_IVLEN, 12, nullptr),
      1);
  std::string tag(17, '\0');
  for (const int bytes : {0, 1, 3, 17}) {
    EXPECT_NE(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, bytes,
                                  tag.data()),
              1)
        << bytes;
  }
  EXPECT_EQ(EVP_CIPHER_get_key_length(wide_.get()), 16);
  EXPECT_EQ(EVP_CIPHER_get_iv_length(wide_.get()), 12);
  EXPECT_EQ(EVP_CIPHER_get_mode(wide_.get()), EVP_CIPH_GCM_MODE);
  EXPECT_NE(EVP_CIPHER_get_flags(wide_.get()) & EVP_CIPH_FLAG_AEAD_CIPHER, 0);
}

// Without a tag to hold it against nothing is right.
TEST_F(WideGcmTest, OpensNothingWithoutATag) {
  const Message message = {Random(16), Random(12), "", Random(64)};
  const Sealed sealed = *Seal(openssl_.get(), other_.get(), message);
  ASSERT_EQ(EVP_CipherInit_ex2(context_.get(), wide_.get(), Bytes(message.key),
                               Bytes(message.nonce), 0, nullptr),
            1);
  EXPECT_EQ(Run(context_.get(), "", sealed.text), message.text);
  unsigned char none[kTagBytes];
  int written = 0;
  EXPECT_EQ(EVP_CipherFinal_ex(context_.get(), none, &written), 0);
}

TEST_F(WideGcmTest, ACopyGoesOnByItself) {
  const Message message = {Random(16), Random(12), Random(13), Random(5000)};
  const Sealed sealed = *Seal(openssl_.get(), other_.get(), message);
  ASSERT_EQ(EVP_CipherInit_ex2(context_.get(), wide_.get(), Bytes(message.key),
                               Bytes(message.nonce), 1, nullptr),
            1);
  std::string to = message.text;
  int written = 0;
  ASSERT_TRUE(Run(context_.get(), message.aad, "").has_value());
  ASSERT_EQ(EVP_CipherUpdate(context_.get(), Bytes(to), &written,
                             Bytes(message.text), 999),
            1);
  const ContextPtr copy(EVP_CIPHER_CTX_new());
  ASSERT_EQ(EVP_CIPHER_CTX_copy(copy.get(), context_.get()), 1);
  context_.reset();
  ASSERT_EQ(EVP_CipherUpdate(copy.get(), Bytes(to) + 999, &written,
                             Bytes(message.text) + 999, 5000 - 999),
            1);
  Sealed got = {to, std::string(kTagBytes, '\0')};
  unsigned char none[kTagBytes];
  ASSERT_EQ(EVP_CipherFinal_ex(copy.get(), none, &written), 1);
  ASSERT_EQ(EVP_CIPHER_CTX_ctrl(copy.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                                got.tag.data()),
            1);
  EXPECT_EQ(got, sealed);
}

// Random calls in any order neither crash nor give a text that was not sealed.
TEST_F(WideGcmTest, TakesCallsInAnyOrder) {
  std::string to(4096 + 64, '\0');
  for (int i = 0; i < 20000; ++i) {
    int written = 0;
    const std::string from = Random(Below(600));
    const int bytes = static_cast<int>(from.size());
    switch (Below(9)) {
      case 0:
        EVP_CipherInit_ex2(context_.get(), wide_.get(), Bytes(Random(16)),
                           nullptr, static_cast<int>(Below(2)), nullptr);
        break;
      case 1:
        EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, Bytes(Random(12)),
                           -1, nullptr);
        break;
      case 2:
        EVP_CipherUpdate(context_.get(), nullptr, &written, Bytes(from), bytes);
        break;
      case 3:
        EVP_CipherUpdate(context_.get(), Bytes(to), &written, Bytes(from),
                         bytes);
        break;
      case 4:
        EVP_CipherUpdate(context_.get(), Bytes(to), &written, Bytes(to), bytes);
        break;
      case 5:
        if (EVP_CipherFinal_ex(context_.get(), Bytes(to), &written) == 1) {
          EXPECT_EQ(EVP_CIPHER_CTX_is_encrypting(context_.get()), 1);
        }
        break;
      case 6: {
        std::string tag = Random(16);
        EVP_CIPHER_CTX_ctrl(
            context_.get(),
            Below(2) == 0 ? EVP_CTRL_AEAD_SET_TAG : EVP_CTRL_AEAD_GET_TAG,
            static_cast<int>(Below(17)), tag.data());
        break;
      }
      case 7: {
        std::string header = Random(EVP_AEAD_TLS1_AAD_LEN);
        header[11] = static_cast<char>(Below(3));
        EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_TLS1_AAD,
                            static_cast<int>(header.size()), header.data());
        break;
      }
      case 8: {
        std::string fixed = Random(4);
        EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_IV_FIXED, 4,
                            fixed.data());
        break;
      }
    }
  }
}

}  // namespace
}  // namespace attnd
