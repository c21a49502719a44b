#include "tests/client/attnload/plain_attention.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "client/element.h"

namespace attnd::attnload {
namespace {

using client::DType;

void Store(DType dtype, float value, std::byte* data, int64_t index) {
  if (dtype == DType::kF32) {
    std::memcpy(data + index * 4, &value, 4);
    return;
  }
  if (dtype == DType::kF16) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(data + index * 2, &half, 2);
    return;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  std::memcpy(data + index * 2, &rounded, 2);
}

// pos_j - pos_i lies within the mask; rows and columns end at one position.
bool Sees(const Shape& s, int64_t i, int64_t j) {
  const int64_t ahead = j - (i + s.kv_len - s.q_len);
  return (!s.mask.causal || ahead <= 0) &&
         (s.mask.window_left < 0 || -ahead <= s.mask.window_left) &&
         (s.mask.window_right < 0 || ahead <= s.mask.window_right);
}

struct Problem {
  const Payload& payload;
  const double scale_factor;
  const Shape& s = payload.shape();
  const float scale = float(scale_factor / std::sqrt(double(s.head_dim)));

  float Q(int64_t b, int64_t i, int64_t h, int64_t d) const {
    return At(payload.q(), b, i, h, d, s.q_len, s.q_heads, s.head_dim);
  }
  float K(int64_t b, int64_t j, int64_t h, int64_t d) const {
    return At(payload.k(), b, j, h, d, s.kv_len, s.kv_heads, s.head_dim);
  }
  float V(int64_t b, int64_t j, int64_t h, int64_t d) const {
    return At(payload.v(), b, j, h, d, s.kv_len, s.kv_heads, s.value_dim);
  }
  float O(const std::byte* data, int64_t b, int64_t i, int64_t h,
          int64_t d) const {
    return At(data, b, i, h, d, s.q_len, s.q_heads, s.value_dim);
  }
  float Score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    float sum = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) {
      sum += Q(b, i, h, d) * K(b, j, h * s.kv_heads / s.q_heads, d);
    }
    return sum * scale;
  }

 private:
  float At(const std::byte* data, int64_t b, int64_t t, int64_t h, int64_t d,
           int64_t length, int64_t heads, int64_t dim) const {
    return client::LoadElement(s.dtype, data,
                               ((b * length + t) * heads + h) * dim + d);
  }
};

void ForwardRow(const Problem& p, int64_t b, int64_t h, int64_t i,
                Answer& answer) {
  const Shape& s = p.s;
  std::vector<float> o(s.value_dim);
  float total = 0;
  for (int64_t j = 0; j < s.kv_len; ++j) {
    if (!Sees(s, i, j)) continue;
    const float weight = std::exp(p.Score(b, h, i, j));
    total += weight;
    for (int64_t d = 0; d < s.value_dim; ++d) {
      o[d] += weight * p.V(b, j, h * s.kv_heads / s.q_heads, d);
    }
  }
  for (int64_t d = 0; d < s.value_dim; ++d) {
    Store(s.dtype, total == 0 ? 0 : o[d] / total, answer.a.data(),
          ((b * s.q_len + i) * s.q_heads + h) * s.value_dim + d);
  }
  answer.rows[(b * s.q_heads + h) * s.q_len + i] = std::log(total);
}

struct Gradients {
  std::vector<float> dq, dk, dv;
};

void BackwardPair(const Problem& p, int64_t b, int64_t h, int64_t i, int64_t j,
                  Gradients& g) {
  const Shape& s = p.s;
  const int64_t kv_h = h * s.kv_heads / s.q_heads;
  const float lse = p.payload.lse()[(b * s.q_heads + h) * s.q_len + i];
  const float weight = std::exp(p.Score(b, h, i, j) - lse);
  float inner = 0;
  for (int64_t d = 0; d < s.value_dim; ++d) {
    const float d_o = p.O(p.payload.d_o(), b, i, h, d);
    inner += d_o * (p.V(b, j, kv_h, d) - p.O(p.payload.o(), b, i, h, d));
    g.dv[((b * s.kv_len + j) * s.kv_heads + kv_h) * s.value_dim + d] +=
        weight * d_o;
  }
  const float ds = weight * inner * p.scale;
  for (int64_t d = 0; d < s.head_dim; ++d) {
    g.dq[((b * s.q_len + i) * s.q_heads + h) * s.head_dim + d] +=
        ds * p.K(b, j, kv_h, d);
    g.dk[((b * s.kv_len + j) * s.kv_heads + kv_h) * s.head_dim + d] +=
        ds * p.Q(b, i, h, d);
  }
}

void StoreAll(DType dtype, const std::vector<float>& from,
              std::vector<std::byte>& to) {
  for (size_t n = 0; n < from.size(); ++n) {
    Store(dtype, from[n], to.data(), int64_t(n));
  }
}

}  // namespace

void ComputePlainly(const Payload& payload, Answer& answer,
                    double scale_factor) {
  const Problem p{payload, scale_factor};
  const Shape& s = p.s;
  Gradients g;
  if (s.backward) {
    g.dq.resize(s.q_elements());
    g.dk.resize(s.k_elements());
    g.dv.resize(s.v_elements());
  }
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      for (int64_t i = 0; i < s.q_len; ++i) {
        if (!s.backward) {
          ForwardRow(p, b, h, i, answer);
          continue;
        }
        for (int64_t j = 0; j < s.kv_len; ++j) {
          if (Sees(s, i, j)) BackwardPair(p, b, h, i, j, g);
        }
      }
    }
  }
  if (!s.backward) return;
  StoreAll(s.dtype, g.dq, answer.a);
  StoreAll(s.dtype, g.dk, answer.b);
  StoreAll(s.dtype, g.dv, answer.c);
}

}  // namespace attnd::attnload
