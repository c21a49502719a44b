#ifndef ATTND_SERVER_IDENTITY_TOKEN_SET_H_
#define ATTND_SERVER_IDENTITY_TOKEN_SET_H_

// Which tokens are known, and whose they are. Only their hashes are kept: who
// reads the file or the server's memory cannot call with what is found there.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/work/priority.h"

namespace attnd::server {

// Someone whom an operator gave a token, and what it may have. What is not set
// is as the server's flags say for any client.
struct NamedIdentity {
  std::string name;
  std::optional<double> calls_per_second;
  std::optional<int64_t> queue_bytes;
  std::optional<double> queue_flops;
  double shares = 1;  // of the devices' time, beside others' one each
  Priority most_priority = Priority::kNormal;  // that a request may have

  friend bool operator==(const NamedIdentity&, const NamedIdentity&) = default;
};

using TokenHash = std::array<uint8_t, 32>;  // SHA-256

TokenHash HashOf(absl::string_view token);

// Immutable once it is filled, and then thread-safe.
class TokenSet {
 public:
  // Returns the identity's index.
  int AddIdentity(NamedIdentity identity);
  void AddToken(const TokenHash& hash, int identity);

  bool Has(const TokenHash& hash) const { return IndexOf(hash) >= 0; }
  // Null: nobody has been given it. Takes as long whoever has it, and if nobody
  // has.
  const NamedIdentity* Find(absl::string_view token) const;

  const std::vector<NamedIdentity>& identities() const { return identities_; }
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  struct Token {
    TokenHash hash;
    int identity;
  };

  // Of the token's identity, or -1.
  int IndexOf(const TokenHash& hash) const;

  std::vector<NamedIdentity> identities_;
  std::vector<Token> tokens_;
};

}  // namespace attnd::server

#endif  // ATTND_SERVER_IDENTITY_TOKEN_SET_H_
