// Whether the certificates that other tests rely on are what they say: by
// OpenSSL's own verification.

#include "tests/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace attnd::testing {
namespace {

using CertificatePtr = std::unique_ptr<X509, decltype(&X509_free)>;

std::vector<CertificatePtr> Parse(const std::string& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> memory(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  std::vector<CertificatePtr> certificates;
  while (X509* certificate =
             PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate, &X509_free);
  }
  return certificates;
}

// X509_V_OK, or what is wrong with the chain for whoever trusts `ca`.
int Verify(const Identity& ca, const Identity& identity) {
  const auto roots = Parse(ca.chain), chain = Parse(identity.chain);
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> store(
      X509_STORE_new(), &X509_STORE_free);
  X509_STORE_add_cert(store.get(), roots[0].get());
  STACK_OF(X509)* const between = sk_X509_new_null();
  for (size_t i = 1; i < chain.size(); ++i) {
    sk_X509_push(between, chain[i].get());
  }
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(
      X509_STORE_CTX_new(), &X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between);
  X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_SERVER);
  X509_verify_cert(context.get());
  const int error = X509_STORE_CTX_get_error(context.get());
  sk_X509_free(between);
  return error;
}

TEST(CertificatesTest, AnAuthoritysCertificatesVerifyWithEitherKind) {
  for (const KeyKind kind : {KeyKind::kEcP256, KeyKind::kRsa2048}) {
    const Identity ca = MakeAuthority("test CA", kind);
    const Identity server = Issue(
        ca, {.dns = {"a.test", "b.test"}, .ips = {"127.0.0.1"}, .key = kind});
    EXPECT_EQ(Verify(ca, server), X509_V_OK);
    X509* const leaf = Parse(server.chain)[0].release();
    EXPECT_EQ(X509_check_host(leaf, "b.test", 0, 0, nullptr), 1);
    EXPECT_EQ(X509_check_host(leaf, "c.test", 0, 0, nullptr), 0);
    EXPECT_EQ(X509_check_ip_asc(leaf, "127.0.0.1", 0), 1);
    EXPECT_EQ(X509_check_ip_asc(leaf, "127.0.0.2", 0), 0);
    X509_free(leaf);
  }
}

TEST(CertificatesTest, BadOnesAreBadAsTheySay) {
  const Identity ca = MakeAuthority("test CA");
  EXPECT_EQ(Verify(ca, Issue(ca, {.starts = -absl::Hours(2),
                                  .ends = -absl::Hours(1)})),
            X509_V_ERR_CERT_HAS_EXPIRED);
  EXPECT_EQ(
      Verify(ca, Issue(ca, {.starts = absl::Hours(1), .ends = absl::Hours(2)})),
      X509_V_ERR_CERT_NOT_YET_VALID);
  EXPECT_EQ(Verify(ca, SelfSigned({})), X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT);
  EXPECT_EQ(Verify(ca, Issue(MakeAuthority("foreign CA"), {})),
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
}

TEST(CertificatesTest, ChainsLeadThroughIntermediates) {
  const Identity ca = MakeAuthority("test CA");
  const Identity first = MakeIntermediate(ca, "first");
  const Identity second = MakeIntermediate(first, "second");
  Identity leaf = Issue(second, {.uris = {"spiffe://cluster/trainer"}});
  EXPECT_EQ(Parse(leaf.chain).size(), 3);
  EXPECT_EQ(Verify(ca, leaf), X509_V_OK);
  // Without them nobody can tell.
  leaf.chain.resize(leaf.chain.find("-----BEGIN", 1));
  EXPECT_EQ(Verify(ca, leaf), X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
}

TEST(CertificatesTest, TheProgramWritesWhatIsSigned) {
  char folder[] = "/tmp/attnd_certificates_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path(folder);
  const auto run = [&](const std::string& arguments) {
    return std::system(
        (ATTND_MAKE_CERTIFICATE " " + path + "/" + arguments).c_str());
  };
  const auto read = [&](const std::string& name) {
    std::ifstream file(path + "/" + name);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_EQ(run("ca --authority --rsa"), 0);
  EXPECT_EQ(run("server --ca=" + path + "/ca --dns=localhost --ip=127.0.0.1"),
            0);
  EXPECT_EQ(run("old --ca=" + path + "/ca --starts=-2h --ends=-1h"), 0);
  const Identity ca{read("ca.pem"), read("ca.key")};
  EXPECT_EQ(Verify(ca, {read("server.pem"), read("server.key")}), X509_V_OK);
  EXPECT_EQ(Verify(ca, {read("old.pem"), read("old.key")}),
            X509_V_ERR_CERT_HAS_EXPIRED);
  struct stat info;
  ASSERT_EQ(stat((path + "/server.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace attnd::testing
