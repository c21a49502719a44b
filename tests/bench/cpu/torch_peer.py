#!/usr/bin/env python3
"""PyTorch's attention on CPUs, run for cpu_attention_bench.

  torch_peer.py THREADS

Says PyTorch's version, then answers each line "forward|backward q_len kv_len
q_heads kv_heads dim causal" with the seconds of one call on random f32 tensors
[1, len, heads, dim]. Forward is scaled_dot_product_attention as users call it;
backward is the operator that its gradient calls, without autograd around it.
"""
import functools
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

aten = torch.ops.aten


@functools.lru_cache(maxsize=2)
def calls(q_len, kv_len, q_heads, kv_heads, dim, causal):
    """The two calls, by name, on tensors of that shape."""
    torch.manual_seed(1)
    sizes = [(q_len, q_heads), (kv_len, kv_heads), (kv_len, kv_heads), (q_len, q_heads)]
    q, k, v, d_o = [torch.randn(1, length, heads, dim).transpose(1, 2) for length, heads in sizes]
    gqa = q_heads != kv_heads

    def forward():
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

    saved = []

    def backward():
        if not saved:
            saved.extend(aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal))
        o, lse = saved
        start = time.perf_counter()
        aten._scaled_dot_product_flash_attention_for_cpu_backward(d_o, q, k, v, o, lse, 0.0, causal)
        return time.perf_counter() - start

    return {"forward": forward, "backward": backward}


def main():
    torch.set_num_threads(int(sys.argv[1]))
    print(torch.__version__, flush=True)
    with torch.no_grad():
        for line in sys.stdin:
            op, *shape, causal = line.split()
            run = calls(*map(int, shape), causal == "1")[op]
            start = time.perf_counter()
            seconds = run()
            if op == "forward":
                seconds = time.perf_counter() - start
            print(seconds, flush=True)


if __name__ == "__main__":
    main()
