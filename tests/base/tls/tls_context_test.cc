// Both ends of a connection, of which either, both or none encrypts by
// wide_gcm.h: they understand each other, and notice what has been changed.

#include "base/tls/tls_context.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <tuple>

#include "base/tls/wide_gcm.h"
#include "gtest/gtest.h"
#include "tests/certificates.h"

namespace attnd {
namespace {

constexpr int kBufferBytes = 1 << 20;

SslContextPtr Plain(const SSL_METHOD* method) {
  return SslContextPtr(SSL_CTX_new(method));
}

// Version; whose context is ours: the server's, the client's.
using Param = std::tuple<int, bool, bool>;

class TlsContextTest : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    const auto [version, ours_serves, ours_asks] = GetParam();
    server_context_ = ours_serves ? NewTlsContext(TLS_server_method())
                                  : Plain(TLS_server_method());
    client_context_ = ours_asks ? NewTlsContext(TLS_client_method())
                                : Plain(TLS_client_method());
    const testing::Identity identity =
        testing::SelfSigned({.dns = {"localhost"}});
    ASSERT_EQ(
        SSL_CTX_use_certificate(server_context_.get(),
                                ReadCertificates(identity.chain)[0].get()),
        1);
    ASSERT_EQ(SSL_CTX_use_PrivateKey(server_context_.get(),
                                     ReadPrivateKey(identity.key).get()),
              1);
    for (SSL_CTX* context : {server_context_.get(), client_context_.get()}) {
      SSL_CTX_set_min_proto_version(context, version);
      SSL_CTX_set_max_proto_version(context, version);
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
      SSL_CTX_set_cipher_list(context, "ECDHE-ECDSA-AES128-GCM-SHA256");
    }
    server_.reset(SSL_new(server_context_.get()));
    client_.reset(SSL_new(client_context_.get()));
    BIO *of_server = nullptr, *of_client = nullptr;
    BIO* to_server = nullptr;
    BIO* to_client = nullptr;
    ASSERT_EQ(
        BIO_new_bio_pair(&of_server, kBufferBytes, &to_server, kBufferBytes),
        1);
    ASSERT_EQ(
        BIO_new_bio_pair(&of_client, kBufferBytes, &to_client, kBufferBytes),
        1);
    SSL_set_bio(server_.get(), of_server, of_server);
    SSL_set_bio(client_.get(), of_client, of_client);
    server_wire_.reset(to_server);
    client_wire_.reset(to_client);
    SSL_set_accept_state(server_.get());
    SSL_set_connect_state(client_.get());
    for (int turn = 0; turn < 10; ++turn) {
      SSL_do_handshake(client_.get());
      Carry(client_wire_.get(), server_wire_.get());
      SSL_do_handshake(server_.get());
      Carry(server_wire_.get(), client_wire_.get());
    }
    ASSERT_TRUE(SSL_is_init_finished(server_.get()));
    ASSERT_TRUE(SSL_is_init_finished(client_.get()));
    ASSERT_EQ(SSL_version(client_.get()), version);
  }

  // All that one end has sent, a byte of it changed if there is to be one.
  void Carry(BIO* from, BIO* to, bool changes = false) {
    std::string bytes(BIO_ctrl_pending(from), '\0');
    if (bytes.empty()) return;
    ASSERT_EQ(BIO_read(from, bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
    if (changes) {
      constexpr size_t kHeader = 5;
      bytes[kHeader + random_() % (bytes.size() - kHeader)] ^= 1;
    }
    ASSERT_EQ(BIO_write(to, bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }

  std::string Random(size_t bytes) {
    std::string text(bytes, '\0');
    for (char& byte : text) byte = static_cast<char>(random_());
    return text;
  }

  static bool Send(SSL* from, const std::string& text) {
    size_t written = 0;
    return SSL_write_ex(from, text.data(), text.size(), &written) == 1 &&
           written == text.size();
  }
  // What is there.
  static std::string Receive(SSL* at) {
    std::string all;
    char some[1 << 15];
    size_t got = 0;
    while (SSL_read_ex(at, some, sizeof(some), &got) == 1)
      all.append(some, got);
    return all;
  }

  // A byte of what one end sends changes on its way.
  void ExpectRefused(SSL* from, BIO* leaves, SSL* to, BIO* arrives) {
    ASSERT_TRUE(Send(from, Random(9000)));
    Carry(leaves, arrives, /*changes=*/true);
    char some[100];
    size_t got = 0;
    EXPECT_EQ(SSL_read_ex(to, some, sizeof(some), &got), 0);
    EXPECT_NE(TakeTlsError(), "");
  }

  std::mt19937 random_{11};
  SslContextPtr server_context_, client_context_;
  SslPtr server_, client_;
  BioPtr server_wire_, client_wire_;
};

TEST_P(TlsContextTest, BothEndsUnderstandEachOther) {
  for (int i = 0; i < 100; ++i) {
    const std::string there =
        Random(i < 10 ? static_cast<size_t>(1 + i) : 1 + random_() % 100000);
    const std::string back = Random(1 + random_() % 100000);
    // New keys amid the connection, which TLS 1.3 has.
    if (i % 10 == 9 && std::get<0>(GetParam()) == TLS1_3_VERSION) {
      ASSERT_EQ(SSL_key_update(client_.get(), SSL_KEY_UPDATE_REQUESTED), 1);
    }
    ASSERT_TRUE(Send(client_.get(), there));
    Carry(client_wire_.get(), server_wire_.get());
    ASSERT_EQ(Receive(server_.get()), there) << i;
    ASSERT_TRUE(Send(server_.get(), back));
    Carry(server_wire_.get(), client_wire_.get());
    ASSERT_EQ(Receive(client_.get()), back) << i;
  }
}

TEST_P(TlsContextTest, WhatHasChangedOnItsWayThereIsRefused) {
  ExpectRefused(client_.get(), client_wire_.get(), server_.get(),
                server_wire_.get());
}

TEST_P(TlsContextTest, WhatHasChangedOnItsWayBackIsRefused) {
  ExpectRefused(server_.get(), server_wire_.get(), client_.get(),
                client_wire_.get());
}

std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  const auto [version, ours_serves, ours_asks] = info.param;
  return std::string(version == TLS1_2_VERSION ? "Tls12" : "Tls13") +
         (ours_serves ? "ServerOurs" : "ServerPlain") +
         (ours_asks ? "ClientOurs" : "ClientPlain");
}

INSTANTIATE_TEST_SUITE_P(
    All, TlsContextTest,
    ::testing::Combine(::testing::Values(TLS1_2_VERSION, TLS1_3_VERSION),
                       ::testing::Bool(), ::testing::Bool()),
    NameOf);

}  // namespace
}  // namespace attnd
