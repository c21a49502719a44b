#include "tests/server/bad_requests.h"

#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/status.h"

namespace attnd::server {
namespace {

namespace pb = ::attn::v1;

constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

class Collector {
 public:
  // A good forward that `spoil` has changed.
  void Forward(std::string name, std::string names,
               const std::function<void(pb::ForwardRequest&)>& spoil) {
    pb::ForwardRequest request = GoodForward();
    spoil(request);
    Add(std::move(name), Op::kForward, request.SerializeAsString(),
        std::move(names));
  }
  void Backward(std::string name, std::string names,
                const std::function<void(pb::BackwardRequest&)>& spoil) {
    pb::BackwardRequest request = GoodBackward();
    spoil(request);
    Add(std::move(name), Op::kBackward, request.SerializeAsString(),
        std::move(names));
  }
  // A good forward's bytes with `more` after them.
  void Append(std::string name, const std::string& more, std::string names,
              absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    Add(std::move(name), Op::kForward, GoodForward().SerializeAsString() + more,
        std::move(names), code);
  }
  void Add(std::string name, Op op, std::string bytes, std::string names,
           absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    all_.push_back(
        {std::move(name), op, std::move(bytes), code, std::move(names)});
  }
  std::vector<BadRequest> Take() { return std::move(all_); }

 private:
  std::vector<BadRequest> all_;
};

void AddShapes(Collector& to) {
  to.Forward("rank 3", "q.shape",
             [](auto& m) { m.mutable_q()->mutable_shape()->RemoveLast(); });
  to.Forward("rank 1000", "q.shape", [](auto& m) {
    for (int i = 0; i < 1000; ++i) m.mutable_q()->add_shape(1);
  });
  to.Forward("no k", "k", [](auto& m) { m.clear_k(); });
  to.Forward("lengths of k and v differ", "v.shape", [](auto& m) {
    *m.mutable_v() = RandomTensor({2, 4, 2, 6});
  });
  to.Forward("batches differ", "k.shape", [](auto& m) {
    *m.mutable_k() = RandomTensor({3, 5, 2, 8});
  });
  to.Forward("head_dim differs", "k.shape", [](auto& m) {
    *m.mutable_k() = RandomTensor({2, 5, 2, 7});
  });
  to.Forward("heads not a multiple", "k.shape", [](auto& m) {
    *m.mutable_k() = RandomTensor({2, 5, 3, 8});
    *m.mutable_v() = RandomTensor({2, 5, 3, 6});
  });
  to.Forward("types differ", "k.dtype",
             [](auto& m) { m.mutable_k()->set_dtype(pb::DATA_TYPE_BF16); });
  to.Forward("no type", "q.dtype",
             [](auto& m) { m.mutable_q()->clear_dtype(); });
  to.Forward("a negative dimension", "q.shape",
             [](auto& m) { m.mutable_q()->set_shape(1, -3); });
  to.Forward("dimensions whose product overflows", "q.shape", [](auto& m) {
    m.mutable_q()->set_shape(0, int64_t{1} << 30);
    m.mutable_q()->set_shape(1, int64_t{1} << 30);
    m.mutable_q()->set_shape(2, int64_t{1} << 30);
  });
  to.Forward("no volume, a dimension of 2^62", "q.shape", [](auto& m) {
    m.mutable_q()->set_shape(0, 0);
    m.mutable_q()->set_shape(1, int64_t{1} << 62);
    m.mutable_q()->clear_data();
  });
  to.Forward("head_dim over 256", "q.shape", [](auto& m) {
    *m.mutable_q() = RandomTensor({2, 3, 4, 257});
    *m.mutable_k() = RandomTensor({2, 5, 2, 257});
  });
  to.Forward("bias of another shape", "bias.shape", [](auto& m) {
    *m.mutable_bias() = RandomTensor({2, 4, 3, 4});
  });
  to.Forward("bytes too few", "q.data",
             [](auto& m) { m.mutable_q()->mutable_data()->pop_back(); });
  to.Forward("bytes too many", "v.data",
             [](auto& m) { m.mutable_v()->mutable_data()->push_back(0); });
  to.Forward("no storage", "k.data",
             [](auto& m) { m.mutable_k()->clear_storage(); });
}

void AddAttention(Collector& to) {
  const auto with = [&to](std::string name, std::string names,
                          const std::function<void(pb::Attention&)>& spoil) {
    to.Forward(std::move(name), "attention." + names,
               [&](auto& m) { spoil(*m.mutable_attention()); });
  };
  with("a length beyond the tensor", "kv_lens", [](auto& a) {
    a.add_kv_lens(5);
    a.add_kv_lens(6);
  });
  with("a negative length", "q_lens", [](auto& a) {
    a.add_q_lens(-1);
    a.add_q_lens(3);
  });
  with("lengths of another batch", "q_lens", [](auto& a) { a.add_q_lens(3); });
  with("too many lengths", "q_lens", [](auto& a) {
    for (int i = 0; i <= 1 << 16; ++i) a.add_q_lens(1);
  });
  with("a start beyond 2^60", "q_start",
       [](auto& a) { a.add_q_start((int64_t{1} << 60) + 1); });
  with("positions that overflow", "kv_start", [](auto& a) {
    a.add_kv_start(int64_t{1} << 60);
    a.set_kv_stride(int64_t{1} << 60);
  });
  with("a stride that overflows", "q_stride",
       [](auto& a) { a.set_q_stride(std::numeric_limits<int64_t>::max()); });
  with("a stride of 0", "q_stride", [](auto& a) { a.set_q_stride(0); });
  with("a stride of 0 for k", "kv_stride", [](auto& a) { a.set_kv_stride(0); });
  with("an infinite scale", "scale",
       [](auto& a) { a.set_scale(std::numeric_limits<float>::infinity()); });
  with("a scale of NaN", "scale",
       [](auto& a) { a.set_scale(std::numeric_limits<float>::quiet_NaN()); });
  with("a softcap of 0", "softcap", [](auto& a) { a.set_softcap(0); });
  with("a window of -2", "mask.window_left",
       [](auto& a) { a.mutable_mask()->set_window_left(-2); });
  with("an unknown layout", "layout",
       [](auto& a) { a.set_layout(static_cast<pb::Layout>(77)); });
}

void AddOptions(Collector& to) {
  to.Forward("an unknown type", "q.dtype", [](auto& m) {
    m.mutable_q()->set_dtype(static_cast<pb::DataType>(99));
  });
  to.Forward("an unknown algorithm", "options.algorithm", [](auto& m) {
    m.mutable_options()->set_algorithm(static_cast<pb::Algorithm>(99));
  });
  to.Forward("an unknown plan", "options.plan", [](auto& m) {
    m.mutable_options()->set_plan(static_cast<pb::Plan>(99));
  });
  to.Forward("a plan to come", "options.plan", [](auto& m) {
    m.mutable_options()->set_plan(static_cast<pb::Plan>(9));
  });
  to.Forward("an unknown priority", "options.priority", [](auto& m) {
    m.mutable_options()->set_priority(static_cast<pb::Priority>(-1));
  });
  to.Forward("an output type that is neither q's nor f32", "o.dtype",
             [](auto& m) { m.mutable_o()->set_dtype(pb::DATA_TYPE_F16); });
  to.Forward("nothing wanted", "o.want", [](auto& m) {
    m.mutable_o()->set_want(false);
    m.mutable_lse()->set_want(false);
  });
  to.Backward("neither o nor delta", "o", [](auto& m) { m.clear_o(); });
  to.Backward("no lse", "lse", [](auto& m) { m.clear_lse(); });
  to.Backward("d_o of another shape", "d_o.shape", [](auto& m) {
    *m.mutable_d_o() = RandomTensor({2, 3, 4, 7});
  });
  to.Backward("lse that is not f32", "lse.dtype",
              [](auto& m) { m.mutable_lse()->set_dtype(pb::DATA_TYPE_F16); });
}

void AddBytes(Collector& to) {
  const std::string good = GoodForward().SerializeAsString();
  to.Append("an unknown field", "\x98\x03\x01", "51", kUnimplemented);
  // attention (5): {field 99: 1}, the only attention.
  to.Append("an unknown field inside", std::string("\x2a\x03\x98\x06\x01", 5),
            "attention.99", kUnimplemented);
  pb::ForwardRequest again;
  *again.mutable_q() = RandomTensor({1, 1, 1, 1});
  to.Append("q twice", again.SerializeAsString(), "q");
  // options (8): {deterministic (2): 1, deterministic: 1}.
  to.Append("a scalar twice", std::string("\x42\x04\x10\x01\x10\x01", 6),
            "options.deterministic");
  to.Add("truncated", Op::kForward, good.substr(0, good.size() - 1), "v");
  to.Add("garbled", Op::kForward, std::string(64, '\xff'), "message");
  to.Add("empty", Op::kForward, "", "q");
  to.Append("a group", "\x9b\x03\x9c\x03", "51", kUnimplemented);
  // q as a varint.
  to.Add("a wrong wire type", Op::kForward, std::string("\x08\x01", 2), "q");
}

}  // namespace

pb::Tensor RandomTensor(const std::vector<int64_t>& shape) {
  static thread_local std::minstd_rand random(7);
  std::normal_distribution<float> normal;
  pb::Tensor tensor;
  tensor.set_dtype(pb::DATA_TYPE_F32);
  int64_t elements = 1;
  for (int64_t size : shape) {
    tensor.add_shape(size);
    elements *= size;
  }
  std::vector<float> values(elements);
  for (float& value : values) value = normal(random);
  tensor.set_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

pb::ForwardRequest GoodForward() {
  pb::ForwardRequest m;
  *m.mutable_q() = RandomTensor({2, 3, 4, 8});
  *m.mutable_k() = RandomTensor({2, 5, 2, 8});
  *m.mutable_v() = RandomTensor({2, 5, 2, 6});
  return m;
}

pb::BackwardRequest GoodBackward() {
  pb::BackwardRequest m;
  *m.mutable_q() = RandomTensor({2, 3, 4, 8});
  *m.mutable_k() = RandomTensor({2, 5, 2, 8});
  *m.mutable_v() = RandomTensor({2, 5, 2, 6});
  *m.mutable_d_o() = RandomTensor({2, 3, 4, 6});
  *m.mutable_o() = RandomTensor({2, 3, 4, 6});
  *m.mutable_lse() = RandomTensor({2, 4, 3});
  return m;
}

std::vector<BadRequest> BadRequests() {
  Collector all;
  AddShapes(all);
  AddAttention(all);
  AddOptions(all);
  AddBytes(all);
  return all.Take();
}

std::string Mismatch(const BadRequest& bad, const absl::Status& status) {
  if (status.code() != bad.code) {
    return absl::StrCat(bad.name, ": got ", status.ToString(), ", wanted ",
                        absl::StatusCodeToString(bad.code));
  }
  for (const wire::FieldViolation& v : wire::FieldViolations(status)) {
    if (v.field == bad.names) return "";
  }
  if (wire::FieldViolations(status).empty() &&
      absl::StrContains(status.message(), bad.names)) {
    return "";
  }
  return absl::StrCat(bad.name, ": does not name ", bad.names, ": ",
                      status.ToString());
}

}  // namespace attnd::server
