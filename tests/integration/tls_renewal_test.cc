// Certificates, authorities and tokens that are renewed while attnd serves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "tests/client/live_server.h"
#include "tests/hang_limit.h"
#include "tests/integration/load.h"
#include "tests/integration/tls_serving.h"
#include "tests/server/token_testing.h"

namespace attnd::testing {
namespace {

std::string Forward(client::Client& client) {
  client::Example example(2, 4);
  const auto report = client.Forward(example.call, {kHangLimit});
  if (!report.ok()) return report.status().ToString();
  example.ExpectAnswered();
  return "";
}

class TlsRenewalTest : public TlsServingTest {
 protected:
  // How often it is in the log.
  int64_t Said(const std::string& text) const {
    const std::vector<std::string> parts =
        absl::StrSplit(process_->log(), text);
    return std::ssize(parts) - 1;
  }
  // Puts `text` into a file, and waits until the server says that it is no
  // good.
  void Break(const std::string& file, const std::string& text,
             const std::string& says) {
    const std::string line = "not renewed, what was good stays: " + says;
    const int64_t before = Said(line);
    ReplaceFile(folder_.File(file), text);
    EXPECT_TRUE(Eventually([&] { return Said(line) > before; }))
        << says << "\n"
        << process_->log();
  }
  // Calls over one connection, over one each, and handshakes.
  void AddEveryKind(Load& load, const Identity& own) const {
    const client::ClientOptions options = Trusting(own);
    for (int i = 0; i < 2; ++i) {
      load.Add([client = std::shared_ptr<client::Client>(MakeClient(options))] {
        return Forward(*client);
      });
    }
    load.Add([this, options] { return Forward(*MakeClient(options)); });
    load.Add([this, options = RawTrusting(own)] {
      TlsPeer peer(process_->tcp(), options);
      return peer.Handshake() && peer.IsServed() ? "" : peer.tls().error();
    });
  }
  void RecordSeconds(const std::string& what, absl::Time since) {
    RecordProperty(what,
                   absl::StrCat(absl::ToDoubleSeconds(MonotonicNow() - since)));
  }
};

TEST_F(TlsRenewalTest, UnderLoadNoCallAndNoHandshakeFails) {
  StartMutual();
  const Identity own = ForClient("alice");
  std::string serial = ServedSerial(RawTrusting(own));
  Load load;
  AddEveryKind(load, own);
  ASSERT_TRUE(load.Await(5));
  for (int round = 0; round < 2; ++round) {
    const Identity next = ForServer();
    Break("server.pem", next.chain, "--tls_key: the key is not that");
    EXPECT_TRUE(load.Await(5));
    Break("server.key", "garbage", "--tls_key: no private key");
    Break("server.pem", next.chain.substr(0, 99), "--tls_cert: a certificate");
    Break("server.pem", "", "--tls_cert: no certificate");
    ReplaceFile(folder_.File("client_ca.pem"), "");
    EXPECT_TRUE(load.Await(5));
    EXPECT_EQ(ServedSerial(RawTrusting(own)), serial);
    ReplaceFile(folder_.File("client_ca.pem"), client_authority_.chain);
    WriteIdentity(next, folder_.File("server"));
    const absl::Time since = MonotonicNow();
    serial = SerialOf(next.chain);
    EXPECT_TRUE(
        Eventually([&] { return ServedSerial(RawTrusting(own)) == serial; }));
    RecordSeconds(absl::StrCat("served_after_seconds_", round), since);
    EXPECT_TRUE(load.Await(5));
  }
  EXPECT_EQ(Metric("attnd_tls_renewals_total"), 2);
  EXPECT_EQ(Metric("attnd_tls_handshakes_failed_total"), 0);
  EXPECT_EQ(Metric("attnd_tls_ended_connections_total"), 0);
}

// Whether the server has ended it, however.
bool HasEnded(TlsPeer& peer) {
  peer.ReceiveToTheEnd();
  char byte = 0;
  errno = 0;
  return recv(peer.fd(), &byte, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN;
}

TEST_F(TlsRenewalTest, ClientsWhomNobodyKnowsAnyMoreAreEnded) {
  StartMutual();
  const Identity later = MakeAuthority("later client CA");
  const Identity alice = ForClient("alice"), bob = Issue(later, {});
  TlsPeer idle(process_->tcp(), RawTrusting(alice));
  ASSERT_TRUE(idle.Handshake() && idle.IsServed());
  const auto caller = MakeClient(Trusting(alice));
  EXPECT_EQ(Forward(*caller), "");
  EXPECT_NE(Call(Trusting(bob)), absl::OkStatus());
  // While both are known, both are served.
  ReplaceFile(folder_.File("client_ca.pem"),
              client_authority_.chain + later.chain);
  EXPECT_TRUE(Eventually([&] { return Call(Trusting(bob)).ok(); }));
  EXPECT_EQ(Forward(*caller), "");
  EXPECT_EQ(Metric("attnd_tls_ended_connections_total"), 0);

  ReplaceFile(folder_.File("client_ca.pem"), later.chain);
  const absl::Time since = MonotonicNow();
  EXPECT_TRUE(HasEnded(idle));
  EXPECT_TRUE(Eventually([&] { return Forward(*caller) != ""; }));
  RecordSeconds("ended_after_seconds", since);
  EXPECT_NE(Call(Trusting(alice)), absl::OkStatus());
  TlsPeer again(process_->tcp(), RawTrusting(alice));
  EXPECT_FALSE(again.Handshake() && again.IsServed());
  EXPECT_EQ(Call(Trusting(bob)), absl::OkStatus());
  EXPECT_EQ(Metric("attnd_tls_ended_connections_total"), 2);
}

TEST_F(TlsRenewalTest, ACallUnderWayEndsWithItsClient) {
  StartMutual({"--lanes=1"});
  const auto caller = MakeClient(Trusting(ForClient("alice")));
  // By the slowest algorithm, most of an hour.
  client::Example endless(int64_t{1} << 18, 4);
  endless.call.k.shape = endless.call.v.shape = endless.call.q.shape;
  endless.call.k.data = endless.call.v.data = endless.q.data();
  endless.call.algorithm = client::Algorithm::kOnlineSoftmax;
  absl::StatusOr<client::Report> report;
  std::thread call([&] {
    report = caller->Forward(endless.call, {absl::InfiniteDuration()});
  });
  EXPECT_TRUE(Eventually([&] { return Metric("attnd_running_requests") == 1; }))
      << process_->log();
  ReplaceFile(folder_.File("client_ca.pem"), foreign_authority_.chain);
  call.join();
  EXPECT_TRUE(absl::IsUnavailable(report.status())) << report.status();
  EXPECT_TRUE(
      Eventually([&] { return Metric("attnd_running_requests") == 0; }));
}

TEST_F(TlsRenewalTest, AClientWhoseTimeIsOverIsEnded) {
  StartMutual();
  // As short as it may be for this machine to shake hands in it.
  bool is_served = false;
  for (absl::Duration time = absl::Seconds(2);
       !is_served && time < kHangLimit / 2; time *= 2) {
    TlsPeer peer(process_->tcp(),
                 RawTrusting(Issue(client_authority_, {.ends = time})));
    is_served = peer.Handshake() && peer.IsServed();
    if (!is_served) continue;
    EXPECT_TRUE(HasEnded(peer));
    EXPECT_TRUE(process_->AwaitLog("certificates have expired"));
  }
  EXPECT_TRUE(is_served);
}

// How often a file has been opened since.
class Openings {
 public:
  explicit Openings(const std::string& path)
      : events_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(events_.get(), path.c_str(), IN_OPEN), 0);
  }
  // Until there were `times` more.
  bool Await(int times) {
    return Eventually([&] {
      inotify_event event;
      while (read(events_.get(), &event, sizeof(event)) == sizeof(event)) {
        --times;
      }
      return times <= 0;
    });
  }

 private:
  const Descriptor events_;
};

// As an operator does it: the server knows both tokens for a while.
TEST_F(TlsRenewalTest, TokensChangeUnderLoadAndNoCallFails) {
  const auto line = [](const std::string& token) {
    return absl::StrCat("alice ", server::HashWord(token), "\n");
  };
  const auto saying = [this](const std::string& token) {
    client::ClientOptions options = Trusting();
    options.token = token;
    return options;
  };
  const server::TempTokenFile tokens;
  tokens.Write(line("token-0"));
  Start({"--token_file=" + tokens.path(), "--require_identity"});
  client::ClientOptions options = Trusting();
  const std::vector<std::string> files = {
      folder_.File("token"), folder_.File("another"), folder_.File("anew")};
  Load load;
  for (const std::string& file : files) {
    ReplaceFile(file, "token-0");
    options.token_file = file;
    if (file == files.back()) break;
    load.Add([client = std::shared_ptr<client::Client>(MakeClient(options))] {
      return Forward(*client);
    });
  }
  load.Add([this, options] { return Forward(*MakeClient(options)); });
  ASSERT_TRUE(load.Await(5));
  for (int round = 0; round < 2; ++round) {
    const std::string old = absl::StrCat("token-", round);
    const std::string next = absl::StrCat("token-", round + 1);
    // What is torn changes nothing.
    tokens.Write(line(old) + "alice sha256:0123");
    EXPECT_TRUE(Eventually([&] { return Said("known so far stay") > round; }))
        << process_->log();
    EXPECT_TRUE(load.Await(5));
    tokens.Write(line(old) + line(next));
    EXPECT_TRUE(Eventually([&] { return Call(saying(next)).ok(); }));
    for (const std::string& file : files) {
      ReplaceFile(file, next);
      if (file == files.back()) break;
      // Once it is read for the second time, what the first brought counts.
      EXPECT_TRUE(Openings(file).Await(2));
    }
    EXPECT_TRUE(load.Await(5));
    const auto stale = MakeClient(saying(old));
    EXPECT_EQ(Forward(*stale), "");
    tokens.Write(line(next));
    const absl::Time since = MonotonicNow();
    EXPECT_TRUE(Eventually([&] { return Forward(*stale) != ""; }));
    RecordSeconds(absl::StrCat("refused_after_seconds_", round), since);
    EXPECT_TRUE(absl::IsUnauthenticated(Call(saying(old))));
    EXPECT_TRUE(load.Await(5));
  }
}

}  // namespace
}  // namespace attnd::testing
