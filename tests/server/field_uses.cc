#include "tests/server/field_uses.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attn/v1/attention.pb.h"
#include "kernels/request.h"
#include "proto/wire/status.h"
#include "server/front/decode.h"
#include "server/transfer/transfer_table.h"
#include "server/work/region.h"
#include "server/work/work.h"
#include "tests/server/fakes/test_regions.h"

namespace attnd::testing {
namespace {

namespace pb = ::attn::v1;
using google::protobuf::Descriptor;

// The tensors that requests give, and those that they ask for.
constexpr const char* kForwardInputs[] = {"q", "k", "v", "bias"};
constexpr const char* kBackwardInputs[] = {"q", "k",   "v",     "bias", "d_o",
                                           "o", "lse", "delta", "d_lse"};
constexpr const char* kForwardOutputs[] = {"o", "lse"};
constexpr const char* kBackwardOutputs[] = {"dq", "dk", "dv"};

absl::Span<const char* const> Inputs(Op op) {
  if (op == Op::kForward) return kForwardInputs;
  return kBackwardInputs;
}

// Valid in either layout: as many heads as tokens.
pb::Tensor TensorFor(absl::string_view name) {
  const bool rows = name == "lse" || name == "delta" || name == "d_lse";
  int64_t bytes = rows ? 4 : 2;
  pb::Tensor tensor;
  tensor.set_dtype(rows ? pb::DATA_TYPE_F32 : pb::DATA_TYPE_F16);
  for (int64_t dim : {2, 4, 4, name == "bias" ? 4 : 8}) {
    if (rows && tensor.shape_size() == 3) break;
    tensor.add_shape(dim);
    bytes *= dim;
  }
  tensor.set_data(std::string(bytes, '\0'));
  return tensor;
}

// "z * 12" of twelve of them.
std::string Summary(const std::string& bytes) {
  if (bytes.empty()) return "nothing";
  const bool same = bytes.find_first_not_of(bytes[0]) == std::string::npos;
  return same ? absl::StrCat(absl::CEscape(bytes.substr(0, 1)), " * ",
                             bytes.size())
              : absl::CHexEscape(bytes);
}

std::string BytesOf(const server::TensorSource& source) {
  std::string bytes;
  if (const auto* pieces = std::get_if<server::HostPieces>(&source)) {
    for (const ConstHostSpan& piece : *pieces) {
      bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  return Summary(bytes);
}

// What requests may name; one without a name, as a field is set alone.
const server::RegionLookup& Regions() {
  static const server::TestRegions* const regions = [] {
    auto* all = new server::TestRegions;
    all->Add(server::TestRegion::OfHost("known", 1 << 16));
    all->Add(server::TestRegion::OfHost("", 1 << 16));
    return all;
  }();
  return *regions;
}

std::string PlaceOf(const server::RegionBytes& place) {
  if (place.region == nullptr) return "";
  return absl::StrCat(place.region->id(), "@", place.offset);
}

std::string List(const std::vector<int64_t>& list) {
  return absl::StrJoin(list, ",");
}

template <typename T>
std::string Number(T value) {
  return absl::StrCat(static_cast<double>(value));
}

Aspects Describe(const server::Work& work, const server::Streamed& streamed) {
  const RequestSpec& spec = work.request->spec();
  Aspects to = {{"status", "OK"},
                {"layout", Number(spec.layout)},
                {"scale", Number(spec.scale.value_or(0))},
                {"softcap", Number(spec.softcap.value_or(0))},
                {"causal", Number(spec.mask.causal)},
                {"window_left", Number(spec.mask.left)},
                {"window_right", Number(spec.mask.right)},
                {"q_lens", List(spec.q_lens)},
                {"kv_lens", List(spec.kv_lens)},
                {"q_start", List(spec.q_start)},
                {"kv_start", List(spec.kv_start)},
                {"q_stride", Number(spec.q_stride)},
                {"kv_stride", Number(spec.kv_stride)},
                {"algorithm", Number(spec.algorithm)},
                {"deterministic", Number(spec.deterministic)},
                {"plan", Number(spec.plan)},
                {"priority", Number(work.priority)}};
  for (int i = 0; i < kTensorIds; ++i) {
    const auto id = static_cast<TensorId>(i);
    const std::string name(TensorName(id));
    to[name + ".data"] = BytesOf(work.inputs[id]);
    const auto* in_region = std::get_if<server::RegionBytes>(&work.inputs[id]);
    to[name + ".region"] = in_region != nullptr ? PlaceOf(*in_region) : "";
    to[name + ".placed"] = PlaceOf(work.placed[id]);
    to[name + ".streamed"] =
        Number(streamed.inputs[id] || streamed.outputs[id]);
    const Request::Tensor& output = work.request->output(id);
    to[name + ".want"] = Number(output.present);
    to[name + ".dtype"] = output.present ? Number(output.spec.dtype) : "";
  }
  return to;
}

// Of an input or an output, of which it decides `aspect`.
void AddRegion(const std::string& name, const std::string& aspect,
               std::vector<FieldUse>& to) {
  to.push_back({name + ".region.region",
                name + " { region { region: 'known' } }", name + aspect,
                "known@0"});
  to.push_back({name + ".region.offset", name + " { region { offset: 512 } }",
                name + aspect, "@512"});
}

void AddInput(const std::string& name, std::vector<FieldUse>& to) {
  const std::string z(TensorFor(name).data().size(), 'z');
  // Types must agree, and Q's comes first: K's is then the one that differs.
  to.push_back(
      {name + ".dtype", name + " { dtype: DATA_TYPE_BF16 }", "status",
       absl::StrCat("INVALID_ARGUMENT ", name == "q" ? "k" : name, ".dtype")});
  to.push_back({name + ".shape", name + " { shape: 1 }", "status",
                absl::StrCat("INVALID_ARGUMENT ", name, ".shape")});
  to.push_back({name + ".data", absl::StrCat(name, " { data: '", z, "' }"),
                name + ".data", Summary(z)});
  to.push_back({name + ".streamed", name + " { streamed {} }", "status",
                absl::StrCat("INVALID_ARGUMENT ", name, ".streamed")});
  AddRegion(name, ".region", to);
}

void AddOutput(const std::string& name, std::vector<FieldUse>& to) {
  to.push_back(
      {name + ".want", name + " { want: false }", name + ".want", "0"});
  if (name == "lse") {  // always F32
    to.push_back({"lse.dtype", "lse { dtype: DATA_TYPE_F16 }", "status",
                  "INVALID_ARGUMENT lse.dtype"});
  } else {
    to.push_back({name + ".dtype", name + " { dtype: DATA_TYPE_F32 }",
                  name + ".dtype", Number(DType::kF32)});
  }
  to.push_back({name + ".streamed", name + " { streamed {} }", "status",
                absl::StrCat("INVALID_ARGUMENT ", name, ".streamed")});
  AddRegion(name, ".placed", to);
}

void AddAttention(std::vector<FieldUse>& to) {
  const auto add = [&to](const std::string& name, const std::string& value,
                         const std::string& becomes) {
    to.push_back({"attention." + name,
                  absl::StrCat("attention { ", name, ": ", value, " }"), name,
                  becomes});
  };
  add("layout", "LAYOUT_BHSD", Number(Layout::kBhsd));
  add("scale", "0.5", "0.5");
  add("softcap", "30", "30");
  for (const char* name : {"q_lens", "kv_lens"}) add(name, "[3, 1]", "3,1");
  for (const char* name : {"q_start", "kv_start"}) add(name, "[9, -7]", "9,-7");
  for (const char* name : {"q_stride", "kv_stride"}) add(name, "3", "3");
  for (const auto& [name, value, becomes] : {std::tuple{"causal", "true", "1"},
                                             {"window_left", "2", "2"},
                                             {"window_right", "1", "1"}}) {
    to.push_back(
        {absl::StrCat("attention.mask.", name),
         absl::StrCat("attention { mask { ", name, ": ", value, " } }"), name,
         becomes});
  }
}

void AddOptions(std::vector<FieldUse>& to) {
  to.push_back({"options.algorithm", "options { algorithm: ALGORITHM_NAIVE }",
                "algorithm", Number(Algorithm::kNaive)});
  to.push_back({"options.deterministic", "options { deterministic: true }",
                "deterministic", "1"});
  to.push_back({"options.plan", "options { plan: PLAN_HEADS }", "plan",
                Number(PlanKind::kHeads)});
  to.push_back({"options.priority", "options { priority: PRIORITY_HIGH }",
                "priority", Number(server::Priority::kHigh)});
}

}  // namespace

const Descriptor& TypeOf(Op op) {
  return op == Op::kForward ? *pb::ForwardRequest::descriptor()
                            : *pb::BackwardRequest::descriptor();
}

std::vector<FieldUse> UsesOf(Op op) {
  std::vector<FieldUse> uses;
  for (const char* name : Inputs(op)) AddInput(name, uses);
  absl::Span<const char* const> outputs = kForwardOutputs;
  if (op == Op::kBackward) outputs = kBackwardOutputs;
  for (const char* name : outputs) AddOutput(name, uses);
  AddAttention(uses);
  AddOptions(uses);
  return uses;
}

std::unique_ptr<Message> BaseOf(Op op, const FieldUse& use) {
  std::unique_ptr<Message> base;
  if (op == Op::kForward) {
    base = std::make_unique<pb::ForwardRequest>();
  } else {
    base = std::make_unique<pb::BackwardRequest>();
  }
  // One of the two is given.
  const absl::string_view absent =
      absl::StartsWith(use.path, "delta.") ? "o" : "delta";
  for (const char* name : Inputs(op)) {
    if (name == absent) continue;
    const auto* field = base->GetDescriptor()->FindFieldByName(name);
    base->GetReflection()
        ->MutableMessage(base.get(), field)
        ->CopyFrom(TensorFor(name));
  }
  return base;
}

std::string Refusal(const absl::Status& status) {
  std::string text = absl::StatusCodeToString(status.code());
  for (const wire::FieldViolation& violation : wire::FieldViolations(status)) {
    absl::StrAppend(&text, " ", violation.field);
  }
  return text;
}

Aspects DecodeUnary(Op op, const std::string& bytes) {
  server::Work work;
  const absl::Status status = server::DecodeWork(op, {bytes}, &Regions(), work);
  return status.ok() ? Describe(work, {})
                     : Aspects{{"status", Refusal(status)}};
}

Aspects DecodeExchanged(const Message& call) {
  auto request = std::make_shared<pb::ExchangeRequest>();
  if (call.GetDescriptor() == pb::ForwardRequest::descriptor()) {
    request->mutable_header()->mutable_forward()->CopyFrom(call);
  } else {
    request->mutable_header()->mutable_backward()->CopyFrom(call);
  }
  const auto spec = server::DecodeExchangeHeader(request, &Regions());
  return spec.ok() ? Describe(*spec->work, spec->streamed)
                   : Aspects{{"status", Refusal(spec.status())}};
}

std::vector<std::string> OnlyIn(const std::set<std::string>& paths,
                                const std::set<std::string>& others) {
  std::vector<std::string> only;
  std::set_difference(paths.begin(), paths.end(), others.begin(), others.end(),
                      std::back_inserter(only));
  return only;
}

}  // namespace attnd::testing
