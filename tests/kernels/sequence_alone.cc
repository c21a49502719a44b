#include "tests/kernels/sequence_alone.h"

#include <bit>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace attnd::testing {
namespace {

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace

ConstTensorView Only(ConstTensorView view, int64_t b) {
  view.data = static_cast<const std::byte*>(view.data) +
              SizeOf(view.dtype) * b * view.batch_stride;
  return view;
}

ConstRowView Only(ConstRowView view, int64_t b) {
  view.data += b * view.batch_stride;
  return view;
}

Problem Alone(const Problem& p, int64_t b, std::vector<KvSegment>* segments) {
  const auto only = [b](absl::Span<const int64_t> values) {
    return values.empty() ? values : values.subspan(b, 1);
  };
  Problem alone = p;
  alone.batch = 1;
  alone.q_len = QLen(p, b);
  alone.q_lens = {};
  alone.q_starts = only(p.q_starts);
  alone.q = Only(p.q, b);
  segments->assign(p.kv.begin(), p.kv.end());
  for (KvSegment& s : *segments) {
    s.len = KvLen(s, b);
    s.lens = {};
    s.positions.starts = only(s.positions.starts);
    s.k = Only(s.k, b);
    s.v = Only(s.v, b);
  }
  alone.kv = *segments;
  return alone;
}

OwnedTensor AloneLike(const OwnedTensor& t, int64_t tokens) {
  return t ? OwnedTensor(t.dtype(), 1, tokens, t.heads(), t.dim())
           : OwnedTensor();
}

bool IsSequence(const OwnedTensor& alone, const OwnedTensor& batch, int64_t b) {
  if (!alone) return true;
  for (int64_t t = 0; t < alone.tokens(); ++t) {
    for (int64_t h = 0; h < alone.heads(); ++h) {
      for (int64_t d = 0; d < alone.dim(); ++d) {
        if (!SameBits(alone.Get(0, t, h, d), batch.Get(b, t, h, d))) {
          return false;
        }
      }
    }
  }
  return true;
}

bool IsSequence(const OwnedRows& alone, const OwnedRows& batch, int64_t b,
                int64_t heads, int64_t rows) {
  if (!alone || !batch) return true;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < rows; ++i) {
      if (!SameBits(alone.Get(0, h, i), batch.Get(b, h, i))) return false;
    }
  }
  return true;
}

std::vector<InvarianceShape> InvarianceShapes() {
  std::vector<InvarianceShape> shapes;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t dim : {2, 40, 64, 128, 256}) {
      shapes.push_back({dtype, dim, dim});
    }
    shapes.push_back({dtype, 72, 128});
  }
  return shapes;
}

std::string ShapeName(const ::testing::TestParamInfo<InvarianceShape>& info) {
  const InvarianceShape& shape = info.param;
  return absl::StrCat(shape.dtype == DType::kF32   ? "F32"
                      : shape.dtype == DType::kF16 ? "F16"
                                                   : "Bf16",
                      "Dims", shape.head_dim, "And", shape.value_dim);
}

}  // namespace attnd::testing
