"""What is measured: shapes, and the work that each is counted as. Knows no torch."""

import math
import random
from dataclasses import dataclass, replace

ELEMENT_BYTES = {'f32': 4, 'f16': 2, 'bf16': 2}


@dataclass(frozen=True)
class Case:
    """One attention problem over [batch, len, heads, dim] tensors."""
    q_len: int
    kv_len: int
    q_heads: int
    kv_heads: int
    head_dim: int = 128
    batch: int = 1
    dtype: str = 'bf16'
    causal: bool = False
    left: int = -1  # columns before a row's own that it sees; -1: all

    @property
    def flops(self):
        """Two matrix products; half of them when causal."""
        full = 4.0 * self.batch * self.q_heads * self.q_len * self.kv_len * self.head_dim
        return full / 2 if self.causal else full

    @property
    def backward_flops(self):
        """Five matrix products for forward's two."""
        return 2.5 * self.flops

    @property
    def kv_bytes(self):
        """What a decoding step has to read."""
        return (2 * self.batch * self.kv_heads * self.kv_len * self.head_dim *
                ELEMENT_BYTES[self.dtype])

    @property
    def name(self):
        return (f'{self.dtype} d{self.head_dim} b{self.batch} h{self.q_heads}/{self.kv_heads} '
                f'{self.q_len}x{self.kv_len} {"causal" if self.causal else "full"}')


def grid(dims, seqs):
    """16,384 tokens in all, heads * dim = 2048."""
    return [
        Case(seq, seq, 2048 // dim, 2048 // dim, dim, batch=max(1, 16384 // seq), causal=causal)
        for dim in dims for seq in seqs for causal in (False, True)
    ]


def deterministic():
    """Where many blocks of columns add to each row of dQ."""
    return grid([128], [2048, 4096, 8192, 16384])


def grouped(batch=2, seq=8192):
    """Four q heads to a K/V head."""
    return [Case(seq, seq, 32, 8, batch=batch, causal=causal) for causal in (False, True)]


def decode():
    """One query a sequence, grouped heads, much K/V."""
    shapes = [(1, 131072), (16, 8192), (64, 4096), (128, 2048)]
    return [Case(1, kv_len, 32, 8, batch=batch) for batch, kv_len in shapes]


def group(count=64, seed=1):
    """Unlike problems: lengths up to 512, mixed heads, full, causal or windowed."""
    draw = random.Random(seed)
    cases = []
    for i in range(count):
        kv_len = draw.randint(1, 512)
        kv_heads = draw.choice([1, 2, 4, 8])
        cases.append(Case(q_len=draw.randint(1, kv_len),
                          kv_len=kv_len,
                          q_heads=kv_heads * draw.choice([1, 2, 4]),
                          kv_heads=kv_heads,
                          causal=i % 3 != 0,
                          left=draw.randint(16, 256) if i % 3 == 2 else -1))
    return cases


def large_group(count=64, seed=1):
    """Unlike problems of usual sizes: lengths log-uniform from 64 to 8192, 4 to 32 heads, half
    of them causal."""
    draw = random.Random(seed)
    cases = []
    for i in range(count):
        length = round(math.exp(draw.uniform(math.log(64), math.log(8192))))
        heads = draw.randint(4, 32)
        cases.append(Case(length, length, heads, heads, causal=i % 2 == 1))
    return cases


def repeated(case, tiles=528, tile_rows=128):
    """The problem as often as it takes to fill a GPU, in one batch: 4 tiles for each of an
    H200's multiprocessors."""
    of_one = case.q_heads * -(-case.q_len // tile_rows)
    return replace(case, batch=-(-tiles // of_one))


def memory(lens=(1024, 4096, 16384)):
    return [Case(n, n, 4, 4) for n in lens]


def baseline():
    """The shape that the fused-kernel papers compare by."""
    return Case(2048, 2048, 40, 40, batch=4, dtype='f16')
