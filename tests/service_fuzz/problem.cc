#include "tests/service_fuzz/problem.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/dtype.h"

namespace attnd::fuzz {

Buffer::Buffer(DType dtype, std::vector<int64_t> shape)
    : dtype(dtype), shape(std::move(shape)) {
  bytes.assign(size() * SizeOf(dtype), 0xff);
}

int64_t Buffer::size() const {
  int64_t elements = 1;
  for (int64_t n : shape) elements *= n;
  return shape.empty() ? 0 : elements;
}

double Buffer::Get(int64_t i) const {
  return LoadElement(bytes.data(), dtype, i);
}

void Buffer::Set(int64_t i, double value) {
  StoreElement(bytes.data(), dtype, i, value);
}

client::ConstTensor Buffer::in() const {
  return {ToClient(dtype), shape, bytes.data()};
}

client::Tensor Buffer::out() { return {ToClient(dtype), shape, bytes.data()}; }

bool Merges(client::Plan plan) {
  return plan == client::Plan::kRing || plan == client::Plan::kStriped ||
         plan == client::Plan::kZigzag || plan == client::Plan::kKv;
}

client::DType ToClient(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return client::DType::kF32;
    case DType::kF16:
      return client::DType::kF16;
    case DType::kBF16:
      return client::DType::kBF16;
  }
  return client::DType::kF32;
}

const char* Name(DType dtype) {
  return dtype == DType::kF32 ? "f32" : dtype == DType::kF16 ? "f16" : "bf16";
}

int64_t FuzzProblem::QLenOf(int64_t b) const {
  return attention.q_lens.empty() ? q_len : attention.q_lens[b];
}

int64_t FuzzProblem::KvLenOf(int64_t b) const {
  return attention.kv_lens.empty() ? kv_len : attention.kv_lens[b];
}

std::vector<int64_t> FuzzProblem::TokenShape(bool of_q, int64_t dim) const {
  const int64_t len = of_q ? q_len : kv_len, heads = of_q ? q_heads : kv_heads;
  switch (attention.layout) {
    case client::Layout::kBshd:
      return {batch, len, heads, dim};
    case client::Layout::kBhsd:
      return {batch, heads, len, dim};
    case client::Layout::kPacked:
      break;
  }
  int64_t total = 0;
  for (int64_t b = 0; b < batch; ++b) total += of_q ? QLenOf(b) : KvLenOf(b);
  return {total, heads, dim};
}

std::vector<int64_t> FuzzProblem::RowShape() const {
  if (!packed()) return {batch, q_heads, q_len};
  return {q_heads, TokenShape(true, 1)[0]};
}

std::string FuzzProblem::Describe() const {
  const client::Attention& a = attention;
  constexpr const char* kLayouts[] = {"bshd", "bhsd", "packed"};
  std::string text = absl::StrCat(
      "--seed=", seed, " --only=", index, ": ", Name(dtype()),
      " --layout=", kLayouts[static_cast<int>(a.layout)], " q [",
      absl::StrJoin(q.shape, ","), "] k [", absl::StrJoin(k.shape, ","),
      "] v [", absl::StrJoin(v.shape, ","), "]");
  const auto list = [&](const char* name, const std::vector<int64_t>& values) {
    if (!values.empty())
      absl::StrAppend(&text, " --", name, "=", absl::StrJoin(values, ","));
  };
  list("q_lens", a.q_lens);
  list("kv_lens", a.kv_lens);
  list("q_start", a.q_start);
  list("kv_start", a.kv_start);
  if (a.q_stride != 1) absl::StrAppend(&text, " --q_stride=", a.q_stride);
  if (a.kv_stride != 1) absl::StrAppend(&text, " --kv_stride=", a.kv_stride);
  if (a.scale) absl::StrAppend(&text, " --scale=", *a.scale);
  if (a.softcap) absl::StrAppend(&text, " --softcap=", *a.softcap);
  if (a.mask.causal) absl::StrAppend(&text, " --causal");
  if (a.mask.window_left >= 0)
    absl::StrAppend(&text, " --window_left=", a.mask.window_left);
  if (a.mask.window_right >= 0)
    absl::StrAppend(&text, " --window_right=", a.mask.window_right);
  if (bias)
    absl::StrAppend(&text, " bias ", Name(bias.dtype), " [",
                    absl::StrJoin(bias.shape, ","), "]");
  if (algorithm != client::Algorithm::kAuto)
    absl::StrAppend(&text, " algorithm ", static_cast<int>(algorithm));
  if (plan != client::Plan::kAuto)
    absl::StrAppend(&text, " plan ", static_cast<int>(plan));
  absl::StrAppend(&text, " o ", Name(o_dtype));
  if (backward) {
    absl::StrAppend(&text, "; backward from ", give_delta ? "delta" : "o",
                    d_lse ? ", d_lse" : "", larger ? ", larger lse" : "",
                    deterministic ? ", deterministic" : "");
    if (want_dq) absl::StrAppend(&text, " dq ", Name(dq_dtype));
    if (want_dk) absl::StrAppend(&text, " dk ", Name(dk_dtype));
    if (want_dv) absl::StrAppend(&text, " dv ", Name(dv_dtype));
  }
  absl::StrAppend(&text, "; ", kind);
  return text;
}

namespace {

// Of the sequence that begins at token `first` when packed.
ConstTensorView View(client::Layout layout, const Buffer& t, int64_t first) {
  ConstTensorView view;
  view.dtype = t.dtype;
  const std::vector<int64_t>& s = t.shape;
  switch (layout) {
    case client::Layout::kBshd:
      view.head_stride = s[3];
      view.token_stride = s[2] * s[3];
      view.batch_stride = s[1] * view.token_stride;
      break;
    case client::Layout::kBhsd:
      view.token_stride = s[3];
      view.head_stride = s[2] * s[3];
      view.batch_stride = s[1] * view.head_stride;
      break;
    case client::Layout::kPacked:
      view.head_stride = s[2];
      view.token_stride = s[1] * s[2];
      break;
  }
  view.data = t.bytes.data() + first * view.token_stride * SizeOf(t.dtype);
  return view;
}

}  // namespace

Problems::Problems(const FuzzProblem& fuzz) : fuzz_(fuzz) {
  const client::Attention& a = fuzz.attention;
  const int64_t count = fuzz.packed() ? fuzz.batch : 1;
  segments_.resize(count);
  int64_t first_q = 0, first_kv = 0;
  for (int64_t n = 0; n < count; ++n) {
    first_q_.push_back(first_q);
    first_kv_.push_back(first_kv);
    Problem p;
    KvSegment& segment = segments_[n];
    p.batch = fuzz.packed() ? 1 : fuzz.batch;
    p.q_len = fuzz.packed() ? fuzz.QLenOf(n) : fuzz.q_len;
    segment.len = fuzz.packed() ? fuzz.KvLenOf(n) : fuzz.kv_len;
    if (!fuzz.packed()) {
      p.q_lens = a.q_lens;
      segment.lens = a.kv_lens;
    }
    p.q_heads = fuzz.q_heads;
    p.kv_heads = fuzz.kv_heads;
    p.head_dim = fuzz.head_dim;
    p.value_dim = fuzz.value_dim;
    p.q = View(a.layout, fuzz.q, first_q);
    segment.k = View(a.layout, fuzz.k, first_kv);
    segment.v = View(a.layout, fuzz.v, first_kv);
    // Starts: none, one for all, or one for each sequence.
    if (a.q_start.size() == 1) {
      p.q_start = a.q_start[0];
    } else if (!a.q_start.empty()) {
      if (fuzz.packed()) {
        p.q_start = a.q_start[n];
      } else {
        p.q_starts = a.q_start;
      }
    }
    if (a.kv_start.size() == 1) {
      segment.positions.start = a.kv_start[0];
    } else if (!a.kv_start.empty()) {
      if (fuzz.packed()) {
        segment.positions.start = a.kv_start[n];
      } else {
        segment.positions.starts = a.kv_start;
      }
    }
    p.q_stride = a.q_stride;
    segment.positions.stride = a.kv_stride;
    p.mask = {a.mask.causal, a.mask.window_left, a.mask.window_right};
    p.scale =
        a.scale.value_or(1.0f / std::sqrt(static_cast<float>(fuzz.head_dim)));
    p.softcap = a.softcap;
    if (fuzz.bias) {
      const std::vector<int64_t>& s = fuzz.bias.shape;
      p.bias.dtype = fuzz.bias.dtype;
      p.bias.row_stride = s[3];
      p.bias.head_stride = s[1] == 1 ? 0 : s[2] * s[3];
      p.bias.batch_stride = s[0] == 1 ? 0 : s[1] * s[2] * s[3];
      const int64_t first = fuzz.packed() ? n * p.bias.batch_stride : 0;
      p.bias.data = fuzz.bias.bytes.data() + first * SizeOf(fuzz.bias.dtype);
    }
    p.kv = {&segment, 1};
    problems_.push_back(p);
    if (fuzz.packed()) {
      first_q += fuzz.QLenOf(n);
      first_kv += fuzz.KvLenOf(n);
    }
  }
}

ConstTensorView Problems::Tokens(size_t n, const Buffer& tensor,
                                 bool of_q) const {
  return View(fuzz_.attention.layout, tensor,
              of_q ? first_q_[n] : first_kv_[n]);
}

ConstRowView Problems::Rows(size_t n, const Buffer& rows) const {
  const float* data = reinterpret_cast<const float*>(rows.bytes.data());
  const std::vector<int64_t>& s = rows.shape;
  if (fuzz_.packed()) return {data + first_q_[n], 0, s[1]};
  return {data, s[1] * s[2], s[2]};
}

}  // namespace attnd::fuzz
