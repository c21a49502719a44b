#include "client/pem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <string>

#include "tests/certificates.h"

namespace attnd::client {
namespace {

using ::attnd::testing::Identity;
using ::attnd::testing::Issue;
using ::attnd::testing::KeyKind;
using ::attnd::testing::MakeAuthority;
using ::attnd::testing::MakeIntermediate;
using ::attnd::testing::SelfSigned;
using ::testing::HasSubstr;

// `key`, encrypted.
std::string Encrypted(const std::string& key) {
  BIO* const in = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  EVP_PKEY* const read = PEM_read_bio_PrivateKey(in, nullptr, nullptr, nullptr);
  BIO* const out = BIO_new(BIO_s_mem());
  char password[] = "secret";
  EXPECT_EQ(PEM_write_bio_PKCS8PrivateKey(out, read, EVP_aes_128_cbc(),
                                          password, 6, nullptr, nullptr),
            1);
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(out, &bytes);
  std::string encrypted(bytes, size);
  BIO_free(out);
  EVP_PKEY_free(read);
  BIO_free(in);
  return encrypted;
}

TEST(PemTest, CertificatesChainsAndKeysOfEitherKindAreTaken) {
  for (const KeyKind kind : {KeyKind::kEcP256, KeyKind::kRsa2048}) {
    const Identity ca = MakeAuthority("ca", kind);
    const Identity leaf = Issue(MakeIntermediate(ca, "between"), {.key = kind});
    for (const Identity& identity : {ca, leaf}) {
      EXPECT_TRUE(CheckCertificates(identity.chain).ok());
      EXPECT_TRUE(CheckUsable(identity.chain).ok());
      EXPECT_TRUE(CheckKey(identity.key).ok());
      EXPECT_TRUE(CheckPair(identity.chain, identity.key).ok());
    }
  }
}

TEST(PemTest, TextBetweenCertificatesAndAKeyBesideThemDoNotMatter) {
  const Identity identity = SelfSigned({});
  const std::string text =
      "# ours\n" + identity.key + "\nand\n" + identity.chain + "\nno more\n";
  EXPECT_TRUE(CheckCertificates(text).ok());
  EXPECT_TRUE(CheckKey(text).ok());
}

TEST(PemTest, WhatIsNoCertificateIsRefused) {
  const Identity identity = SelfSigned({});
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("secret"), identity.key,
        std::string(1000, '\0')}) {
    EXPECT_THAT(std::string(CheckCertificates(text).message()),
                HasSubstr("no certificate in PEM"))
        << text;
  }
}

TEST(PemTest, ADamagedCertificateIsRefusedWhereverItStands) {
  const std::string good = SelfSigned({}).chain;
  std::string changed = good;
  changed[good.size() / 2] = '!';
  std::string zeros = good;
  for (size_t i = 60; i < 120; ++i) zeros[i] = 'A';
  for (const std::string& bad :
       {changed, zeros, good.substr(0, good.size() / 2),
        good.substr(0, good.size() - 30), good.substr(0, 28)}) {
    EXPECT_THAT(std::string(CheckCertificates(bad).message()),
                HasSubstr("certificate 1 in it is damaged"))
        << bad;
    EXPECT_THAT(std::string(CheckCertificates(good + bad).message()),
                HasSubstr("certificate 2 in it is damaged"))
        << bad;
  }
}

TEST(PemTest, AKeyIsWholeAndNotEncrypted) {
  const Identity identity = SelfSigned({});
  const std::string half = identity.key.substr(0, identity.key.size() / 2);
  for (const std::string& text : {std::string(), half, identity.chain}) {
    EXPECT_THAT(std::string(CheckKey(text).message()),
                HasSubstr("no private key in PEM"));
  }
  EXPECT_THAT(std::string(CheckKey(Encrypted(identity.key)).message()),
              HasSubstr("is encrypted"));
}

TEST(PemTest, AKeyBelongsToItsCertificate) {
  const Identity one = SelfSigned({}), other = SelfSigned({});
  const Identity rsa = SelfSigned({.key = KeyKind::kRsa2048});
  for (const std::string& key : {other.key, rsa.key}) {
    EXPECT_THAT(std::string(CheckPair(one.chain, key).message()),
                HasSubstr("does not belong to the client's certificate"));
  }
}

TEST(PemTest, NoErrorStaysBehind) {
  (void)CheckCertificates("none");
  (void)CheckKey("none");
  (void)CheckPair(SelfSigned({}).chain, SelfSigned({}).key);
  EXPECT_EQ(ERR_peek_error(), 0);
}

}  // namespace
}  // namespace attnd::client
