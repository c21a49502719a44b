#ifndef ATTND_TESTS_CLIENT_RAW_TLS_SERVER_H_
#define ATTND_TESTS_CLIENT_RAW_TLS_SERVER_H_

// TLS by OpenSSL alone, for what gRPC's servers do not do.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "tests/certificates.h"

namespace attnd::client {

// Accepts one connection, which it hands to a function on a thread of its own,
// and then closes. Its destructor waits for that.
class OneConnection {
 public:
  explicit OneConnection(std::function<void(int fd)> serve)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] {
      const Descriptor peer(accept(listener_.get(), nullptr, nullptr));
      serve(peer.get());
    });
  }
  ~OneConnection() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const Descriptor listener_;
  int port_ = 0;
  std::thread thread_;
};

// Shakes hands as `identity`, in a context that `configure` changes, and waits
// for the client to close.
inline std::function<void(int fd)> ShakeHands(
    const testing::Identity& identity,
    const std::function<void(SSL_CTX&)>& configure) {
  return [identity, configure](int fd) {
    // OpenSSL writes to sockets as to files, and a client may have gone.
    std::signal(SIGPIPE, SIG_IGN);
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
    const auto reader = [](const std::string& pem) {
      return std::unique_ptr<BIO, decltype(&BIO_free)>(
          BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
    };
    X509* const certificate = PEM_read_bio_X509(reader(identity.chain).get(),
                                                nullptr, nullptr, nullptr);
    EVP_PKEY* const key = PEM_read_bio_PrivateKey(reader(identity.key).get(),
                                                  nullptr, nullptr, nullptr);
    EXPECT_EQ(SSL_CTX_use_certificate(context.get(), certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context.get(), key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    configure(*context);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()),
                                                        &SSL_free);
    SSL_set_fd(ssl.get(), fd);
    if (SSL_accept(ssl.get()) == 1) {
      char bytes[1024];
      while (SSL_read(ssl.get(), bytes, sizeof(bytes)) > 0) {
      }
    }
    // What the client has yet to read would be lost if this closed first.
    shutdown(fd, SHUT_WR);
    char byte = 0;
    while (recv(fd, &byte, 1, 0) > 0) {
    }
  };
}

}  // namespace attnd::client

#endif  // ATTND_TESTS_CLIENT_RAW_TLS_SERVER_H_
