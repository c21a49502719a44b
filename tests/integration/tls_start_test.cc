// attnd does not start with certificates that are not good, and says which flag
// is to blame.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <string>
#include <vector>

#include "tests/certificates.h"
#include "tests/integration/process.h"
#include "tests/temp_folder.h"

namespace attnd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPassword[] = "open sesame";

// The same key, for who knows the password.
std::string Encrypted(const std::string& key) {
  BIO* const from = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  EVP_PKEY* const read =
      PEM_read_bio_PrivateKey(from, nullptr, nullptr, nullptr);
  BIO* const to = BIO_new(BIO_s_mem());
  EXPECT_EQ(
      PEM_write_bio_PKCS8PrivateKey(to, read, EVP_aes_128_cbc(), kPassword,
                                    sizeof(kPassword) - 1, nullptr, nullptr),
      1);
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(to, &bytes);
  std::string text(bytes, size);
  BIO_free(from);
  BIO_free(to);
  EVP_PKEY_free(read);
  return text;
}

class TlsStartTest : public ::testing::Test {
 protected:
  struct Files {
    std::string certificate, key, client_ca;
  };

  // Starts attnd with files that hold these; an empty one is not there.
  Ran Start(const Files& files) const {
    std::vector<std::string> command = {ATTND_BINARY, "--port=0",
                                        "--device=cpu"};
    const auto give = [&](const std::string& flag, const std::string& text) {
      const std::string path = folder_.File(flag);
      std::remove(path.c_str());
      if (!text.empty()) ReplaceFile(path, text);
      command.push_back("--" + flag + "=" + path);
    };
    give("tls_cert", files.certificate);
    give("tls_key", files.key);
    if (files.client_ca != kNone) give("tls_client_ca", files.client_ca);
    return RunProgram(command);
  }

  static constexpr char kNone[] = "none";
  const TempFolder folder_;
  const Identity own_ = SelfSigned({});
};

TEST_F(TlsStartTest, WhatIsNotGoodIsSaidByItsFlag) {
  const Identity old =
      SelfSigned({.starts = -absl::Hours(2), .ends = -absl::Hours(1)});
  const Identity early =
      SelfSigned({.starts = absl::Hours(1), .ends = absl::Hours(2)});
  const std::string half = own_.chain.substr(0, own_.chain.size() / 2);
  const std::string half_key = own_.key.substr(0, own_.key.size() / 2);
  struct Case {
    Files files;
    std::string says;
  };
  for (const Case& wrong : {
           Case{{"", own_.key, kNone}, "--tls_cert: cannot read "},
           Case{{own_.chain, "", kNone}, "--tls_key: cannot read "},
           Case{{own_.chain, own_.key, ""}, "--tls_client_ca: cannot read "},
           Case{{own_.chain, SelfSigned({}).key, kNone},
                "--tls_key: the key is not that of --tls_cert"},
           Case{{own_.chain, Encrypted(own_.key), kNone},
                "--tls_key: no private key (PEM, not encrypted)"},
           Case{{old.chain, old.key, kNone},
                "--tls_cert: the certificate has expired"},
           Case{{early.chain, early.key, kNone},
                "--tls_cert: the certificate is not valid yet"},
           Case{{"garbage", own_.key, kNone}, "--tls_cert: no certificate"},
           Case{{half, own_.key, kNone}, "--tls_cert: a certificate is broken"},
           Case{{own_.chain + half, own_.key, kNone},
                "--tls_cert: a certificate is broken"},
           Case{{own_.chain, "garbage", kNone}, "--tls_key: no private key"},
           Case{{own_.chain, half_key, kNone}, "--tls_key: no private key"},
           Case{{own_.chain, own_.chain, kNone}, "--tls_key: no private key"},
           Case{{own_.chain, own_.key, "garbage"},
                "--tls_client_ca: no certificate"},
           Case{{own_.chain, own_.key, half},
                "--tls_client_ca: a certificate is broken"},
           Case{{std::string((1 << 20) + 1, '\n'), own_.key, kNone},
                "has more than 1048576 bytes"},
       }) {
    SCOPED_TRACE(wrong.says);
    const Ran ran = Start(wrong.files);
    EXPECT_EQ(ran.exit_status, 2);
    EXPECT_THAT(ran.output, HasSubstr(wrong.says));
    EXPECT_THAT(ran.output, Not(HasSubstr("BEGIN")));
  }
}

TEST_F(TlsStartTest, AKeyThatNeedsAPasswordWaitsForNobody) {
  const Ran ran = Start({own_.chain, Encrypted(own_.key), kNone});
  EXPECT_THAT(ran.output, Not(HasSubstr("pass phrase")));
}

TEST_F(TlsStartTest, OneFlagNeedsTheOther) {
  WriteIdentity(own_, folder_.File("own"));
  const std::string certificate = "--tls_cert=" + folder_.File("own.pem");
  const std::string key = "--tls_key=" + folder_.File("own.key");
  struct Case {
    std::vector<std::string> flags;
    std::string says;
  };
  for (const Case& wrong :
       {Case{{certificate}, "--tls_cert: needs --tls_key"},
        Case{{key}, "--tls_key: needs --tls_cert"},
        Case{{"--tls_client_ca=" + folder_.File("own.pem")},
             "--tls_client_ca: needs --tls_cert and --tls_key"},
        Case{{certificate, key, "--tls_min_version=1.1"}, "--tls_min_version"},
        Case{{"--tls_cert="}, "--tls_cert"}}) {
    SCOPED_TRACE(wrong.says);
    std::vector<std::string> command = {ATTND_BINARY, "--port=0",
                                        "--device=cpu"};
    command.insert(command.end(), wrong.flags.begin(), wrong.flags.end());
    const Ran ran = RunProgram(command);
    EXPECT_EQ(ran.exit_status, 2);
    EXPECT_THAT(ran.output, HasSubstr(wrong.says));
  }
}

}  // namespace
}  // namespace attnd::testing
