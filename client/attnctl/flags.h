#ifndef ATTND_CLIENT_ATTNCTL_FLAGS_H_
#define ATTND_CLIENT_ATTNCTL_FLAGS_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "attnd/client.h"
#include "client/credential_flags.h"
#include "client/region_memory.h"

namespace attnd::client {

struct ServerFlags {
  std::string server = "127.0.0.1:7411";
  std::string timeout = "60s";
  std::string request_id, traceparent;  // as CallOptions have them
  bool json = false;
  std::string service;  // health only
  CredentialFlags credentials;
};

// Names of files, and how to compute. What a command lacks stays empty.
struct RequestFlags {
  std::string q, k, v, bias;
  std::string d_o, lse_in, o_in, delta, d_lse;  // backward's inputs
  std::string o, lse, dq, dk, dv;               // outputs
  std::string expect_o, expect_lse, expect_dq, expect_dk, expect_dv;
  double tolerance = 1e-5;

  std::optional<DType> dtype, out_dtype;
  Layout layout = Layout::kBshd;
  std::optional<float> scale, softcap;
  bool causal = false;
  int64_t window_left = -1, window_right = -1;
  std::string q_lens, kv_lens, q_start, kv_start;  // see LoadIntegers
  int64_t q_stride = 1, kv_stride = 1;
  Algorithm algorithm = Algorithm::kAuto;
  Plan plan = Plan::kAuto;
  Priority priority = Priority::kNormal;
  bool deterministic = false;
  TransportFlags transport;
  int connections = 1;
};

struct Flags {
  ServerFlags server;
  RequestFlags request;
};

// The names that flags and reports give an algorithm, a plan and so on.
const char* Name(Algorithm algorithm);
const char* Name(Plan plan);
const char* Name(DType dtype);
const char* Name(TransportKind transport);

// Adds the commands info, health, forward and backward, with their flags.
void AddCommands(Flags& flags, CLI::App& app);

}  // namespace attnd::client

#endif  // ATTND_CLIENT_ATTNCTL_FLAGS_H_
