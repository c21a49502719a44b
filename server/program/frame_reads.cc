#include "server/program/frame_reads.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace attnd::server {

void ReadWholeFrames() {
  constexpr char kName[] = "GRPC_EXPERIMENTS";
  // With the first, gRPC's transport says how much it needs; with the second,
  // the system wakes nobody before that is there.
  std::string experiments = "tcp_frame_size_tuning,tcp_rcv_lowat";
  const char* set = std::getenv(kName);
  if (set != nullptr) absl::StrAppend(&experiments, ",", set);
  setenv(kName, experiments.c_str(), /*overwrite=*/1);
}

}  // namespace attnd::server
