"""Who we are compared with: PyTorch's operators, called directly on [batch, len, heads, dim] memory.

Each forward takes tensors [batch, len, heads, dim] and returns (o, lse), o as the inputs are laid
out and lse [batch, q_heads, q_len]. Each backward takes them with the gradient of o, runs its own
forward, and returns what then gives (dq, dk, dv), as often as it is called.
"""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten
TORCH_DTYPES = {'f32': torch.float32, 'f16': torch.float16, 'bf16': torch.bfloat16}


def _heads_first(*tensors):
    return [t.transpose(1, 2) for t in tensors]


def _result(o, lse):
    o = o.transpose(1, 2)
    batch, q_len, q_heads, _ = o.shape
    return o, lse.reshape(batch, q_heads, -1)[:, :, :q_len]


def cudnn(q, k, v, causal):
    q, k, v = _heads_first(q, k, v)
    o, lse, *_ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
    return _result(o, lse)


def fa2(q, k, v, causal):
    q, k, v = _heads_first(q, k, v)
    o, lse, *_ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
    return _result(o, lse)


def math(q, k, v, causal):
    """Unfused. Gives no LSE."""
    q, k, v = _heads_first(q, k, v)
    with sdpa_kernel(SDPBackend.MATH):
        o = F.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                           enable_gqa=q.shape[1] != k.shape[1])
    return o.transpose(1, 2), None


def _gradients(results):
    return tuple(t.transpose(1, 2) for t in results)


def cudnn_backward(q, k, v, d_o, causal):
    q, k, v, d_o = _heads_first(q, k, v, d_o)
    o, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False)
    return lambda: _gradients(aten._scaled_dot_product_cudnn_attention_backward(
        d_o, q, k, v, o, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, causal))


def fa2_backward(q, k, v, d_o, causal):
    q, k, v, d_o = _heads_first(q, k, v, d_o)
    o, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal, False)
    return lambda: _gradients(aten._scaled_dot_product_flash_attention_backward(
        d_o, q, k, v, o, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset))


def grouped_gradients(q, k, v, d_o, causal):
    """Where q heads share K and V: (dq, dk, dv) of every q head with K and V of its own, summed."""
    group = q.shape[2] // k.shape[2]
    wide = [t.repeat_interleave(group, dim=2) for t in (k, v)]
    dq, dk, dv = fa2_backward(q, *wide, d_o, causal)()
    sums = [t.unflatten(2, (-1, group)).sum(3, dtype=torch.float32) for t in (dk, dv)]
    return dq, *sums


PEERS = {'fa2': fa2, 'cudnn': cudnn}
BACKWARD = {'fa2': fa2_backward, 'cudnn': cudnn_backward}


def tensors(case):
    """Q, K, V, an O and an LSE to write to, on the current GPU."""
    dtype = TORCH_DTYPES[case.dtype]

    def normal(tokens, heads):
        return torch.randn(case.batch, tokens, heads, case.head_dim, device='cuda', dtype=dtype)

    q = normal(case.q_len, case.q_heads)
    k, v = normal(case.kv_len, case.kv_heads), normal(case.kv_len, case.kv_heads)
    lse = torch.full((case.batch, case.q_heads, case.q_len), float('nan'), device='cuda')
    return q, k, v, torch.full_like(q, float('nan')), lse


def gradient_tensors(q, k, v):
    """A gradient of O, and memory for those of Q, K and V."""
    return torch.randn_like(q), *(torch.full_like(t, float('nan')) for t in (q, k, v))


def exact(case, q, k, v):
    """The case in f32, windows included; for small ones. The last row stands at the last column."""
    q, k, v = (t.float().transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(case.q_heads // case.kv_heads, dim=1) for t in (k, v))
    scores = q @ k.transpose(2, 3) / case.head_dim**0.5
    row = torch.arange(case.q_len, device='cuda')[:, None] + case.kv_len - case.q_len
    column = torch.arange(case.kv_len, device='cuda')[None, :]
    seen = torch.ones_like(column <= row)
    if case.causal:
        seen &= column <= row
    if case.left >= 0:
        seen &= column >= row - case.left
    scores = scores.masked_fill(~seen, float('-inf'))
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def difference(o, lse, expected_o, expected_lse):
    """Why two results are not the same attention in 16 bits, or None."""
    if expected_lse is not None:
        worst = (lse - expected_lse.float()).abs().max().item()
        if not worst <= 1e-3:
            return f'LSE differs by {worst:.3g}'
    return _unlike('O', o, expected_o)


def gradient_difference(found, expected):
    """The same of two (dq, dk, dv)."""
    for name, *pair in zip(('dQ', 'dK', 'dV'), found, expected):
        why = _unlike(name, *pair)
        if why is not None:
            return why
    return None


def _unlike(name, found, expected):
    wrong, expected = (found.float() - expected.float()).abs(), expected.float().abs()
    worst, most = wrong.max().item(), expected.max().item()
    if not worst <= 0.03 * most:
        return f'{name} differs by {worst:.3g}, being up to {most:.3g}'
    rms = (wrong.square().mean() / expected.square().mean()).sqrt().item()
    return None if rms <= 0.02 else f'{name} differs by {rms:.3g} of its RMS'
