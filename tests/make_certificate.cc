// make_certificate: a certificate and its key as files, for tests that are not
// in C++.
//
//   make_certificate ca --authority
//   make_certificate server --ca=ca --dns=localhost --ip=127.0.0.1
//   make_certificate old --ca=ca --cn=old --starts=-48h --ends=-24h
//
// writes ca.pem and ca.key, then server.pem, and so on.

#include <fstream>
#include <iterator>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "base/flags.h"
#include "tests/certificates.h"

namespace attnd::testing {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int Main(int argc, char** argv) {
  CLI::App app("Makes a certificate for tests", "make_certificate");
  std::string out, ca;
  bool rsa = false;
  CertificateOptions options;
  const auto duration = [](absl::Duration& target) {
    return [&target](const std::string& text) {
      if (!absl::ParseDuration(text, &target)) {
        throw CLI::ValidationError(text, "is no duration such as -24h");
      }
    };
  };
  app.add_option("out", out, "Writes OUT.pem and OUT.key")->required();
  app.add_option("--ca", ca, "Signed by CA.pem with CA.key; by itself without");
  app.add_option("--cn", options.common_name, "Common name of the subject");
  app.add_option("--dns", options.dns, "A name of the subject");
  app.add_option("--ip", options.ips, "An address of the subject");
  app.add_option("--uri", options.uris, "A URI of the subject");
  app.add_option_function<std::string>("--starts", duration(options.starts),
                                       "When it is valid, from now: -1h");
  app.add_option_function<std::string>("--ends", duration(options.ends), "24h");
  app.add_flag("--authority", options.authority, "May sign others");
  app.add_flag("--rsa", rsa, "RSA of 2048 bits; else EC P-256");
  try {
    ParseFlags(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (rsa) options.key = KeyKind::kRsa2048;
  WriteIdentity(ca.empty()
                    ? SelfSigned(options)
                    : Issue({Read(ca + ".pem"), Read(ca + ".key")}, options),
                out);
  return 0;
}

}  // namespace
}  // namespace attnd::testing

int main(int argc, char** argv) { return attnd::testing::Main(argc, argv); }
