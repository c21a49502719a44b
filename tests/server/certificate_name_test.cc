#include "server/tls/certificate_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>

#include <string>

#include "tests/certificates.h"

namespace attnd::server::tls {
namespace {

using ::attnd::testing::CertificateOptions;
using ::attnd::testing::SelfSigned;

std::string NameOfOne(const CertificateOptions& options) {
  const std::string pem = SelfSigned(options).chain;
  const BioPtr reader(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const X509Ptr certificate(
      PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
  return NameOf(certificate.get());
}

TEST(CertificateNameTest, PrefersUrisToDnsNamesToTheCommonName) {
  EXPECT_EQ(NameOfOne({.common_name = "cn",
                       .dns = {"trainer.example", "other.example"},
                       .uris = {"spiffe://cluster/trainer"}}),
            "spiffe://cluster/trainer");
  EXPECT_EQ(NameOfOne({.common_name = "cn",
                       .dns = {"trainer.example", "other.example"}}),
            "trainer.example");
  EXPECT_EQ(NameOfOne({.common_name = "cn"}), "cn");
}

// Names are compared, logged and put into metrics.
TEST(CertificateNameTest, NeverShowsWhatIsNoPlainText) {
  for (const std::string& name :
       {std::string("two words"), std::string("line\nfeed"),
        std::string("na\xc3\xafve"), std::string("nul\0here", 8)}) {
    EXPECT_THAT(NameOfOne({.common_name = name}),
                ::testing::MatchesRegex("sha256:[0-9a-f]+"));
  }
}

// Or it could have another one's.
TEST(CertificateNameTest, NoneIsNamedLikeAFingerprint) {
  const std::string other = NameOfOne({.common_name = "two words"});
  for (const CertificateOptions& options :
       {CertificateOptions{.common_name = other.substr(0, 64)},
        CertificateOptions{.dns = {other}},
        CertificateOptions{.uris = {other}}}) {
    const std::string name = NameOfOne(options);
    EXPECT_THAT(name, ::testing::MatchesRegex("sha256:[0-9a-f]+"));
    EXPECT_NE(name, other);
  }
}

}  // namespace
}  // namespace attnd::server::tls
