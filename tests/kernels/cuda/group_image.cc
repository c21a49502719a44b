#include "tests/kernels/cuda/group_image.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace attnd::testing {
namespace {

constexpr std::byte kPoison{0xff};  // NaN in each of the types
constexpr int64_t kAlignment = 256;
constexpr int64_t kGuardBytes = 256;  // at least, between two tensors

int64_t ReachBytes(int64_t size, absl::Span<const int64_t> sizes,
                   absl::Span<const int64_t> strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return (last + 1) * size;
}

template <class View>
int64_t TensorBytes(const View& t, const Problem& p, int64_t tokens,
                    int64_t heads, int64_t dim) {
  return ReachBytes(SizeOf(t.dtype), {p.batch, tokens, heads, dim},
                    {t.batch_stride, t.token_stride, t.head_stride, 1});
}

template <class View>
int64_t RowBytes(const View& rows, const Problem& p) {
  return ReachBytes(sizeof(float), {p.batch, p.q_heads, p.q_len},
                    {rows.batch_stride, rows.head_stride, 1});
}

// Calls visit(pointer, bytes, is_output) for every view that is not null, in an
// order of its own. `segments` are the problem's.
template <class Visit>
class Views {
 public:
  explicit Views(const Visit& visit) : visit_(visit) {}

  void ForEach(ForwardArgs& args, std::vector<KvSegment>& segments) {
    const Problem& p = args.problem;
    Inputs(args.problem, segments);
    Output(args.o, TensorBytes(args.o, p, p.q_len, p.q_heads, p.value_dim));
    Output(args.lse, RowBytes(args.lse, p));
    const ConstTensorView& o = args.before.o;
    Input(args.before.o, TensorBytes(o, p, p.q_len, p.q_heads, p.value_dim));
    Input(args.before.lse, RowBytes(args.before.lse, p));
  }

  void ForEach(BackwardArgs& args, std::vector<KvSegment>& segments) {
    const Problem& p = args.problem;
    Inputs(args.problem, segments);
    Input(args.d_o, TensorBytes(args.d_o, p, p.q_len, p.q_heads, p.value_dim));
    Input(args.o, TensorBytes(args.o, p, p.q_len, p.q_heads, p.value_dim));
    for (ConstRowView* rows : {&args.lse, &args.delta, &args.d_lse}) {
      Input(*rows, RowBytes(*rows, p));
    }
    Gradient(args.dq, args.dq_before, [&](const auto& view) {
      return TensorBytes(view, p, p.q_len, p.q_heads, p.head_dim);
    });
    for (KvSegment& s : segments) {
      Gradient(s.dk, s.dk_before, [&](const auto& view) {
        return TensorBytes(view, p, s.len, p.kv_heads, p.head_dim);
      });
      Gradient(s.dv, s.dv_before, [&](const auto& view) {
        return TensorBytes(view, p, s.len, p.kv_heads, p.value_dim);
      });
    }
  }

 private:
  template <class View>
  void Input(View& view, int64_t bytes) {
    if (view) visit_(view.data, bytes, false);
  }
  template <class View>
  void Output(View& view, int64_t bytes) {
    if (view) visit_(view.data, bytes, true);
  }
  // `before` may be the output's own memory, and stays so.
  template <class Bytes>
  void Gradient(TensorView& view, ConstTensorView& before, const Bytes& bytes) {
    if (!view) return;  // nothing reads what was there before it
    const bool in_place = before && before.data == view.data;
    Output(view, bytes(view));
    if (in_place) {
      before.data = view.data;
    } else {
      Input(before, bytes(before));
    }
  }

  void Inputs(Problem& p, std::vector<KvSegment>& segments) {
    int64_t columns = 0;
    Input(p.q, TensorBytes(p.q, p, p.q_len, p.q_heads, p.head_dim));
    for (KvSegment& s : segments) {
      Input(s.k, TensorBytes(s.k, p, s.len, p.kv_heads, p.head_dim));
      Input(s.v, TensorBytes(s.v, p, s.len, p.kv_heads, p.value_dim));
      columns += s.len;
    }
    Input(p.bias,
          ReachBytes(
              SizeOf(p.bias.dtype), {p.batch, p.q_heads, p.q_len, columns},
              {p.bias.batch_stride, p.bias.head_stride, p.bias.row_stride, 1}));
  }

  const Visit& visit_;
};

template <class Args, class Visit>
void ForEachView(Args& args, std::vector<KvSegment>& segments,
                 const Visit& visit) {
  Views<Visit>(visit).ForEach(args, segments);
}

}  // namespace

template <class Args>
GroupImage<Args>::GroupImage(absl::Span<const Args> group)
    : group_(group.begin(), group.end()) {
  int64_t end = 0;
  for (Args& args : group_) {
    auto& segments =
        segments_.emplace_back(args.problem.kv.begin(), args.problem.kv.end());
    const auto place = [&](const void* host, int64_t bytes, bool is_output) {
      const int64_t aligned =
          (end + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
      const int64_t at = aligned + reinterpret_cast<uintptr_t>(host) % 16;
      slots_.push_back({host, at, bytes, is_output});
      end = at + bytes;
    };
    ForEachView(args, segments, place);
  }
  bytes_.assign(end + kGuardBytes, kPoison);
  for (const Slot& slot : slots_) {
    if (slot.bytes == 0) continue;
    std::memcpy(bytes_.data() + slot.at, slot.host, slot.bytes);
  }
}

template <class Args>
std::vector<Args> GroupImage<Args>::Rebind(std::byte* base) {
  std::vector<Args> rebound = group_;
  size_t next = 0;
  for (size_t i = 0; i < rebound.size(); ++i) {
    segments_[i].assign(group_[i].problem.kv.begin(),
                        group_[i].problem.kv.end());
    ForEachView(rebound[i], segments_[i], [&](auto& data, int64_t, bool) {
      std::byte* at = base + slots_[next++].at;
      data = reinterpret_cast<std::remove_reference_t<decltype(data)>>(at);
    });
    rebound[i].problem.kv = segments_[i];
  }
  return rebound;
}

template <class Args>
absl::Status GroupImage<Args>::TakeOutputs(
    const std::vector<std::byte>& after) {
  for (const Slot& slot : slots_) {
    if (!slot.is_output || slot.bytes == 0) continue;
    const std::byte* output = after.data() + slot.at;
    std::memcpy(bytes_.data() + slot.at, output, slot.bytes);
    // Outputs came as views that may be written to.
    std::memcpy(const_cast<void*>(slot.host), output, slot.bytes);
  }
  if (std::memcmp(bytes_.data(), after.data(), bytes_.size()) == 0) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (bytes_[i] == after[i]) continue;
    return absl::InternalError(
        absl::StrCat("byte ", i, " of ", bytes_.size(),
                     " was written to, which is in no output"));
  }
  return absl::OkStatus();
}

template class GroupImage<ForwardArgs>;
template class GroupImage<BackwardArgs>;

}  // namespace attnd::testing
