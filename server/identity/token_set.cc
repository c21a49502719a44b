#include "server/identity/token_set.h"

#include <utility>

#include "openssl/crypto.h"
#include "openssl/sha.h"

namespace attnd::server {

TokenHash HashOf(absl::string_view token) {
  static_assert(SHA256_DIGEST_LENGTH == sizeof(TokenHash));
  TokenHash hash{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         hash.data());
  return hash;
}

int TokenSet::AddIdentity(NamedIdentity identity) {
  identities_.push_back(std::move(identity));
  return static_cast<int>(identities_.size()) - 1;
}

void TokenSet::AddToken(const TokenHash& hash, int identity) {
  tokens_.push_back({hash, identity});
}

const NamedIdentity* TokenSet::Find(absl::string_view token) const {
  const int index = IndexOf(HashOf(token));
  return index < 0 ? nullptr : &identities_[index];
}

int TokenSet::IndexOf(const TokenHash& hash) const {
  // It looks at all of them and takes no branch: how long that takes tells
  // nobody which hash is near.
  int found = -1;
  for (const Token& token : tokens_) {
    const int differs =
        CRYPTO_memcmp(token.hash.data(), hash.data(), hash.size());
    const int same = -static_cast<int>(differs == 0);  // all bits or none
    found = (token.identity & same) | (found & ~same);
  }
  return found;
}

}  // namespace attnd::server
