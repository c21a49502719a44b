// Who may read whose memory.

#include "absl/strings/str_cat.h"
#include "tests/bench/gpu/peer/sections.h"

namespace attnd::bench {

void ReportAccess(Team& team, Report& report) {
  Report::Note(
      "reader.owner: can the reader's device, is peer access on, did the "
      "owner's default pool let it in; rank: 0 is the best connected");
  for (int to = 0; to < team.size(); ++to) {
    for (int from = 0; from < team.size(); ++from) {
      if (to == from) continue;
      const Access& access = team.access(to, from);
      const std::string pair = absl::StrCat(to, ".", from);
      report.Row(pair + ".can_access", access.can, "bool");
      report.Row(pair + ".peer_access", access.peer, "bool");
      report.Row(pair + ".pool_access", access.pool, "bool");
      report.Row(pair + ".native_atomics", access.has_atomics, "bool");
      report.Row(pair + ".performance_rank", access.rank, "rank");
    }
  }
  report.Row("buffers_from_pools", team.has_pools(), "bool");
}

}  // namespace attnd::bench
