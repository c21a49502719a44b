#ifndef ATTND_TESTS_BENCH_SECURITY_SIEGE_H_
#define ATTND_TESTS_BENCH_SECURITY_SIEGE_H_

#include <sched.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tests/bench/security/cuts.h"
#include "tests/bench/security/flooders.h"
#include "tests/bench/security/good_caller.h"
#include "tests/bench/security/held_streams.h"
#include "tests/bench/security/way.h"
#include "tests/bench/table.h"
#include "tests/integration/floods.h"
#include "tests/integration/process.h"
#include "tests/tls_client.h"

namespace attnd::bench {

struct SiegeOptions {
  double seconds = 3;  // of each flood
  int threads = 4;     // that flood at once
  std::string flood;   // the one that there is; empty: all

  bool has(absl::string_view name) const {
    return flood.empty() || name == flood;
  }
};

// Sets of processors, by who has them.
struct Processors {
  cpu_set_t server, good, floods;
};

// One flood, or streams that are held.
struct Seen {
  std::string name;
  GoodCalls good;
  Poured poured;
  Cuts cuts;
  // Of a connection of its own; a flood is sent no more than that, and then
  // waited for.
  bool is_ended_within_a_mib = true;
  double peak_mib = 0;  // of the server, so far

  double P99() const;  // ms, of the slower kind of good calls
};

// A server that is reached by one way, and all that is done to it.
class Siege {
 public:
  // Starts it; the caller has the processors of good calls from then on. Both
  // must outlive it. Ends the program if it does not start.
  Siege(Way way, const SiegeOptions& options, const Processors& processors);

  // Prints a line for each flood, and judges them together. Blocks for all of
  // their seconds, and half a minute.
  void Run(Table& table);
  nlohmann::json ToJson() const;

 private:
  const testing::TlsClientOptions* tls() const {
    return tls_.has_value() ? &*tls_ : nullptr;
  }
  double Resident() const;
  Seen Pour(const testing::Flood& flood, GoodCaller& good);
  Seen HoldOpen(const HeldStreams& held, GoodCaller& good, Table& table);
  void Finish(Seen seen, size_t logged);
  void Judge(Table& table) const;

  const Way way_;
  const SiegeOptions& options_;
  const Processors& processors_;
  const Credentials credentials_;
  std::optional<testing::TlsClientOptions> tls_;
  std::unique_ptr<testing::ServerProcess> server_;
  std::vector<Seen> seen_;
  GoodCalls alone_;
  double idle_mib_ = 0, peak_mib_ = 0, rested_mib_ = 0;
};

}  // namespace attnd::bench

#endif  // ATTND_TESTS_BENCH_SECURITY_SIEGE_H_
