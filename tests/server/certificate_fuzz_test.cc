// Certificates whose elements, and files whose lines, are not as they should
// be. Others in every round:
//   tls_test --gtest_filter='*Fuzz*' --gtest_shuffle --gtest_repeat=ROUNDS

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "tests/certificates.h"
#include "tests/server/fuzz/certificate_check.h"
#include "tests/server/fuzz/corpus.h"

namespace attnd::server::tls::testing {
namespace {

using attnd::server::testing::FuzzSeed;
using attnd::testing::Identity;

TEST(CertificateFuzz, EveryCertificateHasANameThatCanBeShown) {
  constexpr int kInputs = 20'000;
  const auto corpus = attnd::server::testing::Corpus("certificate");
  ASSERT_GE(corpus.size(), 6);
  std::minstd_rand random(FuzzSeed());
  int certificates = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string der = corpus[random() % corpus.size()].second;
    for (int n = random() % 3; n >= 0; --n) der = MutateDer(random, der);
    bool is_certificate = false;
    const absl::Status status = CheckCertificate(der, &is_certificate);
    ASSERT_TRUE(status.ok()) << status;
    certificates += is_certificate;
  }
  EXPECT_GT(certificates, kInputs / 50);
  EXPECT_LT(certificates, kInputs * 49 / 50);
}

TEST(CertificateFuzz, TheCorpusStillPasses) {
  for (const auto& [name, der] :
       attnd::server::testing::Corpus("certificate")) {
    EXPECT_EQ(CheckCertificate(der), absl::OkStatus()) << name;
  }
}

// A line, or some bytes, changed, repeated, or taken out.
std::string MutatePem(std::minstd_rand& random, std::string text,
                      const std::string& other) {
  const size_t at = text.empty() ? 0 : random() % text.size();
  const size_t line = text.rfind('\n', at) + 1;  // npos + 1 is 0
  const size_t end = text.find('\n', at);
  switch (random() % 7) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(random());
      break;
    case 1:
      text.erase(at, random() % 70);
      break;
    case 2:
      text.resize(at);
      break;
    case 3:
      text.insert(line, text.substr(line, end - line));
      break;
    case 4:
      text.insert(line, other);
      break;
    case 5:
      text.insert(at, 1, "\n\r -=\0A"[random() % 7]);
      break;
    default:
      text += other;
  }
  return text;
}

TEST(CredentialsFuzz, FilesAreTakenOrRefusedByTheirFlag) {
  constexpr int kInputs = 1'000;
  const Identity own = attnd::testing::SelfSigned({});
  const Identity other = attnd::testing::SelfSigned({});
  std::minstd_rand random(FuzzSeed());
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    std::string certificate = own.chain, key = own.key, client_ca;
    if (random() % 2 == 0) client_ca = other.chain;
    for (int n = random() % 3; n > 0; --n) {
      std::string* const texts[] = {&certificate, &key, &client_ca};
      std::string& text = *texts[random() % 3];
      text = MutatePem(random, std::move(text),
                       random() % 2 == 0 ? other.chain : other.key);
    }
    bool good = false;
    const absl::Status status =
        CheckCredentials(certificate, key, client_ca, &good);
    ASSERT_TRUE(status.ok()) << status;
    accepted += good;
  }
  EXPECT_GT(accepted, kInputs / 50);
  EXPECT_LT(accepted, kInputs * 49 / 50);
}

TEST(CredentialsFuzz, CertificatesThatAreBrokenWithinAreRefusedByTheirFlag) {
  const auto corpus = attnd::server::testing::Corpus("certificate");
  ASSERT_FALSE(corpus.empty());
  const Identity own = attnd::testing::SelfSigned({});
  std::minstd_rand random(FuzzSeed());
  for (int i = 0; i < 1'000; ++i) {
    const std::string der =
        MutateDer(random, corpus[random() % corpus.size()].second);
    const std::string pem = ToPem(der);
    const bool is_servers = random() % 2 == 0;
    const absl::Status status = CheckCredentials(
        is_servers ? pem : own.chain, own.key, is_servers ? "" : pem);
    ASSERT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace attnd::server::tls::testing
