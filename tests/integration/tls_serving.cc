#include "tests/integration/tls_serving.h"

#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/hang_limit.h"
#include "tests/integration/http2_bytes.h"
#include "tests/integration/http2_socket.h"

namespace attnd::testing {

TlsPeer::TlsPeer(const std::string& address, const TlsClientOptions& options)
    : socket_(ConnectedSocket(address)), tls_(socket_.get(), options) {}

bool TlsPeer::IsServed() {
  return tls_.Send(absl::StrCat(kPreface, Frame(kSettings, 0, 0))) &&
         !tls_.Receive().empty();
}

void TlsPeer::ReceiveToTheEnd() {
  while (!Receive().empty()) {
  }
}

std::string ClientHello() {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                 pair) != 0) {
    std::abort();
  }
  const Descriptor ours(pair[0]), theirs(pair[1]);
  // Nobody answers, so that it stops after its first flight.
  TlsClient client(theirs.get(), {});
  (void)client.Handshake();
  std::string hello(16384, '\0');
  const ssize_t size = recv(ours.get(), hello.data(), hello.size(), 0);
  if (size <= 0) std::abort();
  hello.resize(size);
  return hello;
}

TlsServingTest::TlsServingTest() {
  // OpenSSL writes to connections that the server has ended.
  signal(SIGPIPE, SIG_IGN);
  WriteIdentity(ForServer(), folder_.File("server"));
  ReplaceFile(folder_.File("client_ca.pem"), client_authority_.chain);
}

void TlsServingTest::Start(std::vector<std::string> flags) {
  flags.insert(flags.end(),
               {"--threads=1", "--memory_limit=256MiB", "--metrics_port=0",
                "--tls_cert=" + folder_.File("server.pem"),
                "--tls_key=" + folder_.File("server.key")});
  auto process = ServerProcess::Start(ATTND_BINARY, flags);
  ASSERT_TRUE(process.ok()) << process.status();
  process_ = *std::move(process);
  ASSERT_TRUE(process_->AwaitLog("metrics on")) << process_->log();
}

void TlsServingTest::StartMutual(std::vector<std::string> flags) {
  flags.push_back("--tls_client_ca=" + folder_.File("client_ca.pem"));
  Start(std::move(flags));
}

client::ClientOptions TlsServingTest::Trusting(const Identity& own) const {
  client::ClientOptions options;
  options.max_attempts = 1;
  options.tls.enabled = true;
  options.tls.ca_pem = authority_.chain;
  options.tls.certificate_pem = own.chain;
  options.tls.key_pem = own.key;
  return options;
}

std::unique_ptr<client::Client> TlsServingTest::MakeClient(
    const client::ClientOptions& options) const {
  auto client = client::Client::Create(process_->tcp(), options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

absl::Status TlsServingTest::Call(const client::ClientOptions& options) const {
  const auto client = MakeClient(options);
  if (client == nullptr) return absl::InternalError("no client");
  return client->GetServerInfo({kHangLimit}).status();
}

TlsClientOptions TlsServingTest::RawTrusting(const Identity& own) const {
  TlsClientOptions options;
  options.ca = authority_.chain;
  options.certificate = own.chain;
  options.key = own.key;
  return options;
}

std::string TlsServingTest::ServedSerial(
    const TlsClientOptions& options) const {
  TlsPeer peer(process_->tcp(), options);
  return peer.Handshake() ? peer.tls().ServerSerial() : "";
}

}  // namespace attnd::testing
