#ifndef ATTND_CLIENT_ATTNCTL_COMMANDS_H_
#define ATTND_CLIENT_ATTNCTL_COMMANDS_H_

// The three steps of the commands forward and backward. Which of them failed
// says whose fault it was: the files', the call's, the files' again.
//
//   Load    files and flags -> Request
//   Send    Request -> Report, and outputs in the Request's memory
//   Finish  outputs -> files, and what they differ by from expectation

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
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
  std::optional<Difference> difference;  // set by Finish
};

// A call and the memory of its tensors, which stays where it is when this is
// moved.
struct Request {
  std::string what;  // e.g. "forward: q [1, 67, 12, 32], k [...], f32"
  std::variant<ForwardCall, BackwardCall> call;
  std::deque<HostTensor> inputs;
  std::vector<OutputResult> outputs;
  // Of the region that the call's tensors lie in; 0: in none.
  int64_t leased_bytes = 0;
  bool on_device = false;  // the region's memory is a GPU's
};

// Reads the files that `flags` name. Errors as LoadTensor's and LoadIntegers'.
absl::StatusOr<Request> LoadForward(const RequestFlags& flags);
absl::StatusOr<Request> LoadBackward(const RequestFlags& flags);

// Makes the call. Errors as the client's, which may be a server's text.
absl::StatusOr<Report> Send(Client& client, Request& request,
                            const CallOptions& options);

// Writes and compares every output that asks for it; the first error, of
// files, after all of them were tried.
absl::Status Finish(Request& request);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_COMMANDS_H_
