#ifndef ATTND_CLIENT_ATTNCTL_COMMANDS_H_
#define ATTND_CLIENT_ATTNCTL_COMMANDS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnd/client.h"
#include "client/attnctl/flags.h"
#include "client/attnctl/tensors.h"

namespace attnd::client {

// One output of a request: where it goes and how far it is from expectation.
struct OutputResult {
  std::string name;
  std::string path;         // empty: not written
  std::string expect_path;  // empty: not compared
  HostTensor tensor;
  std::optional<Difference> difference;
};

struct RequestResult {
  std::string what;  // e.g. "forward q [1, 67, 12, 32] f32"
  Report report;
  std::vector<OutputResult> outputs;
};

// A failure, and whose it is.
struct Failure {
  absl::Status status;
  bool from_call = false;  // else of flags or files
};

// Each reads its files, makes its call and writes its files; false, with
// `failure` set, when it could not.
bool RunForward(Client& client, const RequestFlags& flags,
                const CallOptions& options, RequestResult& result,
                Failure& failure);
bool RunBackward(Client& client, const RequestFlags& flags,
                 const CallOptions& options, RequestResult& result,
                 Failure& failure);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_COMMANDS_H_
