#include "kernels/reference/drive.h"

#include "kernels/dtype.h"
#include "kernels/reference/flash_attention_1.h"
#include "kernels/reference/flash_attention_2.h"
#include "kernels/reference/naive.h"
#include "kernels/reference/online_softmax.h"

namespace attnd::reference {

template <typename T>
bool RunForward(const Head<T>& head, const Choice& choice,
                HeadForward<T>& out) {
  switch (choice.algorithm) {
    case Algorithm::kOnlineSoftmax:
      return OnlineSoftmaxForward(head, out);
    case Algorithm::kFlashAttention1:
      return FlashAttention1Forward(head, BlockSizes{}, out);
    case Algorithm::kFlashAttention2:
      return FlashAttention2Forward(head, BlockSizes{}, out);
    case Algorithm::kNaive:
    case Algorithm::kAuto:
      break;
  }
  return NaiveForward(head, choice.round_to, out);
}

template <typename T>
bool RunBackward(const Head<T>& head, const Choice& choice,
                 const HeadUpstream<T>& in, HeadGradients<T>& out) {
  switch (choice.algorithm) {
    case Algorithm::kOnlineSoftmax:
      return OnlineSoftmaxBackward(head, in, out);
    case Algorithm::kFlashAttention1:
      return FlashAttention1Backward(head, BlockSizes{}, in, out);
    case Algorithm::kFlashAttention2:
      return FlashAttention2Backward(head, BlockSizes{}, in, out);
    case Algorithm::kNaive:
    case Algorithm::kAuto:
      break;
  }
  return NaiveBackward(head, choice.round_to, in, out);
}

template <typename T>
HeadUpstream<T> ReadUpstream(const BackwardArgs& args, int64_t b, int64_t h) {
  const Problem& p = args.problem;
  const int64_t rows = QLen(p, b);
  const auto element = [&](const ConstTensorView& t, int64_t i,
                           int64_t d) -> T {
    return LoadElement(
        t.data, t.dtype,
        b * t.batch_stride + i * t.token_stride + h * t.head_stride + d);
  };
  const auto row = [&](const ConstRowView& r, int64_t i) -> T {
    return r.data[b * r.batch_stride + h * r.head_stride + i];
  };
  HeadUpstream<T> in{Matrix<T>(rows, p.value_dim), std::vector<T>(rows),
                     std::vector<T>(rows)};
  for (int64_t i = 0; i < rows; ++i) {
    in.lse[i] = row(args.lse, i);
    T delta = args.delta ? row(args.delta, i) : T{0};
    for (int64_t d = 0; d < p.value_dim; ++d) {
      in.d_o[i][d] = element(args.d_o, i, d);
      if (!args.delta) delta += in.d_o[i][d] * element(args.o, i, d);  // (E11)
    }
    in.delta[i] = args.d_lse ? delta - row(args.d_lse, i) : delta;
  }
  return in;
}

template bool RunForward(const Head<float>&, const Choice&,
                         HeadForward<float>&);
template bool RunForward(const Head<double>&, const Choice&,
                         HeadForward<double>&);
template bool RunBackward(const Head<float>&, const Choice&,
                          const HeadUpstream<float>&, HeadGradients<float>&);
template bool RunBackward(const Head<double>&, const Choice&,
                          const HeadUpstream<double>&, HeadGradients<double>&);
template HeadUpstream<float> ReadUpstream(const BackwardArgs&, int64_t,
                                          int64_t);
template HeadUpstream<double> ReadUpstream(const BackwardArgs&, int64_t,
                                           int64_t);

}  // namespace attnd::reference
