#include "client/attnctl/flags.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/wire/status.h"

namespace attnd::client {
namespace {

const std::map<std::string, DType>& DTypes() {
  static const auto& names = *new std::map<std::string, DType>{
      {"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}};
  return names;
}

const std::map<std::string, Algorithm>& Algorithms() {
  static const auto& names = *new std::map<std::string, Algorithm>{
      {"auto", Algorithm::kAuto},
      {"naive", Algorithm::kNaive},
      {"online_softmax", Algorithm::kOnlineSoftmax},
      {"flash_attention_1", Algorithm::kFlashAttention1},
      {"flash_attention_2", Algorithm::kFlashAttention2}};
  return names;
}

const std::map<std::string, Plan>& Plans() {
  static const auto& names = *new std::map<std::string, Plan>{
      {"auto", Plan::kAuto},     {"one_device", Plan::kOneDevice},
      {"heads", Plan::kHeads},   {"gather", Plan::kGather},
      {"ring", Plan::kRing},     {"striped", Plan::kStriped},
      {"zigzag", Plan::kZigzag}, {"kv", Plan::kKv}};
  return names;
}

const std::map<std::string, TransportKind>& Transports() {
  static const auto& names = *new std::map<std::string, TransportKind>{
      {"auto", TransportKind::kAuto},
      {"unary", TransportKind::kUnary},
      {"stream", TransportKind::kStream},
      {"region", TransportKind::kRegion}};
  return names;
}

template <typename Value>
const char* NameIn(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, named] : names) {
    if (named == value) return name.c_str();
  }
  return "unknown";
}

// One of the names in `values`, which --help lists, as an error does. Not by
// CLI11's transformers: they print the values too, and take them for names.
template <typename T, typename Value>
CLI::Option* AddChoice(CLI::App& app, const std::string& flag, T& target,
                       const std::map<std::string, Value>& values,
                       const std::string& help) {
  const std::string names = absl::StrJoin(
      values, ", ",
      [](std::string* out, const auto& value) { out->append(value.first); });
  const auto choose = [flag, names, values, &target](const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end()) {
      throw CLI::ValidationError(
          flag, absl::StrCat("\"", wire::Echo(name), "\" is none of ", names));
    }
    target = found->second;
  };
  return app.add_option_function<std::string>(flag, choose, help)
      ->type_name(absl::StrCat("{", names, "}"));
}

void AddServerFlags(ServerFlags& flags, CLI::App& app) {
  app.add_option("--server", flags.server, "host:port or unix:/path")
      ->capture_default_str()
      ->group("Server");
  app.add_option("--timeout", flags.timeout, "for the whole call, as 500ms, 1m")
      ->capture_default_str()
      ->group("Server");
  app.add_option("--request_id", flags.request_id,
                 "by which the server's log has the call: letters, digits and "
                 "\"._:-\"")
      ->type_name("ID")
      ->group("Server");
  app.add_option("--traceparent", flags.traceparent,
                 "the trace that the call is in, as W3C's Trace Context has it")
      ->group("Server");
  app.add_flag("--json", flags.json, "print JSON")->group("Server");
  flags.credentials.Add(app, "Security");
}

void AddAttentionFlags(RequestFlags& flags, CLI::App& app) {
  const char* group = "Attention";
  AddChoice(app, "--layout", flags.layout,
            std::map<std::string, Layout>{{"bshd", Layout::kBshd},
                                          {"bhsd", Layout::kBhsd},
                                          {"packed", Layout::kPacked}},
            "of q, k, v, o and gradients; bshd by default")
      ->group(group);
  app.add_option("--scale", flags.scale, "1 / sqrt(head_dim) by default")
      ->group(group);
  app.add_option("--softcap", flags.softcap, "none by default")->group(group);
  app.add_flag("--causal", flags.causal)->group(group);
  app.add_option("--window_left", flags.window_left, "-1: unlimited")
      ->group(group);
  app.add_option("--window_right", flags.window_right, "-1: unlimited")
      ->group(group);
  const char* list = "1,2,3 or an int64 .npy file";
  app.add_option("--q_lens", flags.q_lens, list)->group(group);
  app.add_option("--kv_lens", flags.kv_lens, list)->group(group);
  app.add_option("--q_start", flags.q_start, list)->group(group);
  app.add_option("--kv_start", flags.kv_start, list)->group(group);
  app.add_option("--q_stride", flags.q_stride)->group(group);
  app.add_option("--kv_stride", flags.kv_stride)->group(group);
}

void AddExecutionFlags(RequestFlags& flags, CLI::App& app) {
  const char* group = "Execution";
  AddChoice(app, "--algorithm", flags.algorithm, Algorithms(),
            "the device's fastest by default")
      ->group(group);
  AddChoice(app, "--plan", flags.plan, Plans(),
            "how a team of devices shares it; by default as the server chooses")
      ->group(group);
  AddChoice(app, "--priority", flags.priority,
            std::map<std::string, Priority>{{"low", Priority::kLow},
                                            {"normal", Priority::kNormal},
                                            {"high", Priority::kHigh}},
            "normal by default")
      ->group(group);
  AddChoice(app, "--dtype", flags.dtype, DTypes(),
            "send q, k, v (and d_o) as this, rounded if need be; bf16 also "
            "reads 16-bit integers as its bits. By default as the files are")
      ->group(group);
  AddChoice(app, "--out_dtype", flags.out_dtype, DTypes(),
            "of o or gradients; as q by default")
      ->group(group);
}

void AddTransportFlags(RequestFlags& flags, CLI::App& app) {
  const char* group = "Server";
  AddChoice(app, "--transport", flags.transport.transport, TransportChoices(),
            "as one message, in chunks, or in memory that the server shares, "
            "its own or a GPU's; by default as the size has it")
      ->group(group);
  app.add_option("--region_socket", flags.transport.region_socket,
                 "for region and device_region: where the server shares memory "
                 "(attnd --region_socket)")
      ->type_name("PATH")
      ->group(group);
  app.add_option("--gpu", flags.transport.gpu,
                 "for device_region: which GPU of this process has the tensors")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--connections", flags.connections,
                 "what travels in chunks uses up to one for every 16 MiB")
      ->capture_default_str()
      ->check(CLI::Range(1, 256))
      ->group(group);
}

void AddFile(CLI::App& app, const std::string& name, std::string& target,
             const char* group, const std::string& help,
             bool required = false) {
  app.add_option(name, target, help)
      ->type_name("NPY")
      ->required(required)
      ->group(group);
}

void AddExpectation(CLI::App& app, const std::string& output,
                    std::string& target) {
  AddFile(app, "--expect_" + output, target, "Outputs",
          "compare " + output + " with this");
}

void AddTolerance(RequestFlags& flags, CLI::App& app) {
  app.add_option("--tolerance", flags.tolerance,
                 "largest difference from what is expected, as a share of its "
                 "largest value")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Outputs");
}

void AddForward(Flags& flags, CLI::App& app) {
  RequestFlags& r = flags.request;
  AddFile(app, "--q", r.q, "Inputs", "[batch, q_len, q_heads, head_dim]", true);
  AddFile(app, "--k", r.k, "Inputs", "[batch, kv_len, kv_heads, head_dim]",
          true);
  AddFile(app, "--v", r.v, "Inputs", "[batch, kv_len, kv_heads, value_dim]",
          true);
  AddFile(app, "--bias", r.bias, "Inputs",
          "[1|batch, 1|q_heads, q_len, kv_len]");
  AddFile(app, "--o", r.o, "Outputs", "write O here");
  AddFile(app, "--lse", r.lse, "Outputs", "write LSE here");
  AddExpectation(app, "o", r.expect_o);
  AddExpectation(app, "lse", r.expect_lse);
  AddTolerance(r, app);
  AddAttentionFlags(r, app);
  AddExecutionFlags(r, app);
  AddTransportFlags(r, app);
}

void AddBackward(Flags& flags, CLI::App& app) {
  RequestFlags& r = flags.request;
  AddFile(app, "--q", r.q, "Inputs", "[batch, q_len, q_heads, head_dim]", true);
  AddFile(app, "--k", r.k, "Inputs", "[batch, kv_len, kv_heads, head_dim]",
          true);
  AddFile(app, "--v", r.v, "Inputs", "[batch, kv_len, kv_heads, value_dim]",
          true);
  AddFile(app, "--bias", r.bias, "Inputs",
          "[1|batch, 1|q_heads, q_len, kv_len]");
  AddFile(app, "--d_o", r.d_o, "Inputs", "gradient of O", true);
  AddFile(app, "--lse", r.lse_in, "Inputs", "the forward's LSE", true);
  AddFile(app, "--o", r.o_in, "Inputs", "the forward's O; or --delta");
  AddFile(app, "--delta", r.delta, "Inputs", "rowsum(d_o * o)");
  AddFile(app, "--d_lse", r.d_lse, "Inputs", "gradient of LSE");
  AddFile(app, "--dq", r.dq, "Outputs", "write the gradient of Q here");
  AddFile(app, "--dk", r.dk, "Outputs", "write the gradient of K here");
  AddFile(app, "--dv", r.dv, "Outputs", "write the gradient of V here");
  AddExpectation(app, "dq", r.expect_dq);
  AddExpectation(app, "dk", r.expect_dk);
  AddExpectation(app, "dv", r.expect_dv);
  AddTolerance(r, app);
  AddAttentionFlags(r, app);
  AddExecutionFlags(r, app);
  AddTransportFlags(r, app);
  app.add_flag("--deterministic", r.deterministic, "the same bits on every run")
      ->group("Execution");
}

}  // namespace

const char* Name(Algorithm algorithm) {
  return NameIn(Algorithms(), algorithm);
}

const char* Name(Plan plan) { return NameIn(Plans(), plan); }

const char* Name(DType dtype) { return NameIn(DTypes(), dtype); }

const char* Name(TransportKind transport) {
  return NameIn(Transports(), transport);
}

void AddCommands(Flags& flags, CLI::App& app) {
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done; 1 a result differs from what was expected; 2 bad "
      "flags or files, or what could not be written; 3 the server refused or "
      "could not be reached.");
  CLI::App* info = app.add_subcommand("info", "what a server is and limits");
  CLI::App* health = app.add_subcommand("health", "whether a server serves");
  CLI::App* forward =
      app.add_subcommand("forward", "O and LSE of Q, K and V in .npy files");
  CLI::App* backward =
      app.add_subcommand("backward", "gradients of Q, K and V in .npy files");
  for (CLI::App* command : {info, health, forward, backward}) {
    AddServerFlags(flags.server, *command);
  }
  health->add_option("--service", flags.server.service,
                     "of the server; empty: the server itself");
  AddForward(flags, *forward);
  AddBackward(flags, *backward);
}

}  // namespace attnd::client
