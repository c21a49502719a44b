#include "server/work/client_shares.h"

namespace attnd::server {

bool ClientShares::MayAdd(const std::string& client) const {
  auto found = clients_.find(client);
  return found == clients_.end() ||
         found->second.amount <= kShare * (limit_ - held_);
}

double ClientShares::Of(const std::string& client) const {
  auto found = clients_.find(client);
  return found == clients_.end() ? 0 : found->second.amount;
}

void ClientShares::Add(const std::string& client, double amount) {
  Held& held = clients_[client];
  ++held.entries;
  held.amount += amount;
  held_ += amount;
}

void ClientShares::Remove(const std::string& client, double amount) {
  auto found = clients_.find(client);
  found->second.amount -= amount;
  held_ -= amount;
  if (--found->second.entries == 0) clients_.erase(found);
  // No rounding is left behind.
  if (clients_.empty()) held_ = 0;
}

}  // namespace attnd::server
