#include "tests/bench/security/way.h"

#include "absl/strings/str_cat.h"

namespace attnd::bench {

const char* NameOf(Way way) {
  switch (way) {
    case Way::kClear:
      return "clear";
    case Way::kTls:
      return "TLS";
    case Way::kMutualTls:
      return "mutual TLS";
  }
  return "";
}

Credentials::Credentials()
    : authority_(testing::MakeAuthority("bench CA")),
      server_(testing::Issue(authority_,
                             {.dns = {"localhost"}, .ips = {"127.0.0.1"}})),
      client_(testing::Issue(authority_, {.common_name = "bench client"})),
      flooder_(testing::Issue(authority_, {.common_name = "flooder"})) {
  testing::WriteIdentity(server_, folder_.File("server"));
  testing::ReplaceFile(folder_.File("ca.pem"), authority_.chain);
  testing::ReplaceFile(ServerBundle(), server_.chain + server_.key);
}

std::vector<std::string> Credentials::ServerFlags(Way way) const {
  std::vector<std::string> flags;
  if (way == Way::kClear) return flags;
  flags.push_back(absl::StrCat("--tls_cert=", folder_.File("server.pem")));
  flags.push_back(absl::StrCat("--tls_key=", folder_.File("server.key")));
  if (way == Way::kMutualTls) {
    flags.push_back(absl::StrCat("--tls_client_ca=", folder_.File("ca.pem")));
  }
  return flags;
}

client::TlsOptions Credentials::Client(Way way) const {
  client::TlsOptions tls;
  if (way == Way::kClear) return tls;
  tls.enabled = true;
  tls.ca_pem = authority_.chain;
  if (way == Way::kMutualTls) {
    tls.certificate_pem = client_.chain;
    tls.key_pem = client_.key;
  }
  return tls;
}

std::optional<testing::TlsClientOptions> Credentials::Peer(Way way) const {
  if (way == Way::kClear) return std::nullopt;
  testing::TlsClientOptions tls;
  tls.ca = authority_.chain;
  if (way == Way::kMutualTls) {
    tls.certificate = flooder_.chain;
    tls.key = flooder_.key;
  }
  return tls;
}

}  // namespace attnd::bench
