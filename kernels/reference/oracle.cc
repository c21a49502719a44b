// The naive algorithm in double over a whole problem.

#include <algorithm>

#include "kernels/reference/drive.h"
#include "kernels/reference/reference.h"

namespace attnd::reference {
namespace {

// Writes rows of `from` from `first` on to tokens [0, count) of head h in a
// contiguous [batch, len, heads, dim].
void StoreTokens(const Matrix<double>& from, int64_t first, int64_t count,
                 int64_t len, int64_t b, int64_t h, int64_t heads,
                 std::vector<double>& to) {
  for (int64_t t = 0; t < count; ++t)
    std::copy_n(from[first + t], from.cols(),
                to.begin() + ((b * len + t) * heads + h) * from.cols());
}

// Nobody cancels an oracle.
Problem WithoutToken(Problem problem) {
  problem.cancel = nullptr;
  return problem;
}

}  // namespace

ExactForward OracleForward(const Problem& problem) {
  const Problem p = WithoutToken(problem);
  const int64_t rows = p.batch * p.q_heads * p.q_len;
  ExactForward exact{std::vector<double>(rows * p.value_dim, 0.0),
                     std::vector<double>(rows, kMinusInf<double>)};
  ForwardHeads<double>(
      p, Choice{}, [&](int64_t b, int64_t h, const HeadForward<double>& head) {
        StoreTokens(head.o, 0, head.o.rows(), p.q_len, b, h, p.q_heads,
                    exact.o);
        std::copy(head.lse.begin(), head.lse.end(),
                  exact.lse.begin() + (b * p.q_heads + h) * p.q_len);
      });
  return exact;
}

ExactBackward OracleBackward(const BackwardArgs& given) {
  BackwardArgs args = given;
  args.problem = WithoutToken(given.problem);
  const Problem& p = args.problem;
  ExactBackward exact;
  exact.dq.assign(p.batch * p.q_len * p.q_heads * p.head_dim, 0.0);
  for (const KvSegment& s : p.kv) {
    exact.dk.emplace_back(p.batch * s.len * p.kv_heads * p.head_dim, 0.0);
    exact.dv.emplace_back(p.batch * s.len * p.kv_heads * p.value_dim, 0.0);
  }
  BackwardHeads<double>(
      args, Choice{},
      [&](int64_t b, int64_t h, const Matrix<double>& dq) {
        StoreTokens(dq, 0, dq.rows(), p.q_len, b, h, p.q_heads, exact.dq);
      },
      [&](int64_t b, int64_t kv_head, const Matrix<double>& dk,
          const Matrix<double>& dv) {
        int64_t first = 0;
        for (size_t n = 0; n < p.kv.size(); ++n) {
          const int64_t count = KvLen(p.kv[n], b), len = p.kv[n].len;
          StoreTokens(dk, first, count, len, b, kv_head, p.kv_heads,
                      exact.dk[n]);
          StoreTokens(dv, first, count, len, b, kv_head, p.kv_heads,
                      exact.dv[n]);
          first += count;
        }
      });
  return exact;
}

}  // namespace attnd::reference
