"""How many bytes each algorithm asks its memory for, counted from how it is written.

An algorithm is a list of passes. A pass reads and writes whole matrices of one head, some of them
once and some once for each of T blocks, as many as its length has of `block` rows or columns. What
a block keeps on chip is not counted; what a cache then saves is not known here, which is why it is
measured too. Sums that are added to in memory count as written.

Matrices of a head, S long and d wide:
  M4, M  scores, S x S, in f32 and in the inputs' type
  X4, X  as Q, S x d, in f32 and in the inputs' type
  r      a row's number, S x 1, in f32
"""

from dataclasses import dataclass, field

MATRICES = ('M4', 'M', 'X4', 'X', 'r')


@dataclass(frozen=True)
class Pass:
    what: str
    reads: dict = field(default_factory=dict)  # matrix: how often
    writes: dict = field(default_factory=dict)
    block_reads: dict = field(default_factory=dict)  # matrix: how often in each of T blocks
    block_writes: dict = field(default_factory=dict)
    block: int = 0  # rows or columns


@dataclass(frozen=True)
class Traffic:
    reads: float  # bytes
    writes: float

    @property
    def total(self):
        return self.reads + self.writes


# As kernels/cuda/baselines/naive/naive.h numbers its steps.
_SCORES = [
    Pass('S = Q K^T', {'X': 2}, {'M4': 1}),
    Pass('scale', {'M4': 1}, {'M4': 1}),
    Pass('max', {'M4': 1}, {'r': 1}),
    Pass('subtract', {'M4': 1, 'r': 1}, {'M4': 1}),
    Pass('exp', {'M4': 1}, {'M4': 1}),
]
_NAIVE_FORWARD = _SCORES + [
    Pass('sum', {'M4': 1}, {'r': 1}),
    Pass('divide', {'M4': 1, 'r': 2}, {'M': 1, 'r': 1}),
    Pass('O = P V', {'M': 1, 'X': 1}, {'X': 1}),
]
# As kernels/cuda/baselines/naive/naive_backward.h has its two orders.
_LAST_PRODUCTS = [
    Pass('dQ = dX K', {'M': 1, 'X': 1}, {'X': 1}),
    Pass('dK = dX^T Q', {'M': 1, 'X': 1}, {'X': 1}),
]
_NAIVE_BACKWARD = [
    Pass('S = Q K^T', {'X': 2}, {'M4': 1}),
    Pass('P', {'M4': 1, 'r': 1}, {'M': 1}),
    Pass('dV = P^T dO', {'M': 1, 'X': 1}, {'X': 1}),
    Pass('dP = dO V^T', {'X': 2}, {'M4': 1}),
    Pass('delta', {'X': 2}, {'r': 1}),
    Pass('dX = P (dP - delta)', {'M4': 2, 'r': 2}, {'M': 1}),
] + _LAST_PRODUCTS
_NAIVE_AUTOGRAD = _SCORES + [
    Pass('P = E / l', {'M4': 1, 'r': 1}, {'M': 1}),
    Pass('dP = dO V^T', {'X': 2}, {'M4': 1}),
    Pass('dV = P^T dO', {'M': 1, 'X': 1}, {'X': 1}),
    Pass('dE = dP / l', {'M4': 1, 'r': 1}, {'M4': 1}),
    Pass('dE += dl', {'M4': 1, 'r': 1}, {'M4': 1}),
    Pass('dD = dE E', {'M4': 2}, {'M4': 1}),
    Pass('dX from dS', {'M4': 1}, {'M': 1}),
] + _LAST_PRODUCTS
# Algorithm 1: columns outside, in blocks of 64; O, m and l of every row at each.
_FLASH_ATTENTION_1 = [
    Pass('O = 0, l = 0, m = -inf', {}, {'X4': 1, 'r': 2}),
    Pass('columns', {'X': 2}, {}, {'X': 1, 'X4': 1, 'r': 2}, {'X4': 1, 'r': 2}, 64),
    Pass('O and LSE', {'X4': 1, 'r': 2}, {'X': 1, 'r': 1}),
]
# Rows outside, in blocks of 128 at d = 128 here and on Hopper.
_FUSED_FORWARD = [Pass('rows', {'X': 1}, {'X': 1, 'r': 1}, {'X': 2}, {}, 128)]
# Columns outside, in blocks of 128 at d = 128, which add to sums of dQ.
_FUSED_BACKWARD = [
    Pass('LSE, delta, zeros', {'X': 2, 'r': 1}, {'X4': 1, 'r': 2}),
    Pass('columns', {'X': 2}, {'X': 2}, {'X': 2, 'r': 2}, {'X4': 1}, 128),
    Pass('dQ', {'X4': 1, 'r': 1}, {'X': 1}),
]

GPU = {
    ('naive', 'forward'): _NAIVE_FORWARD,
    ('naive', 'backward'): _NAIVE_BACKWARD,
    ('naive_autograd', 'backward'): _NAIVE_AUTOGRAD,
    ('flash_attention_1', 'forward'): _FLASH_ATTENTION_1,
    ('flash_attention_2', 'forward'): _FUSED_FORWARD,
    ('flash_attention_2', 'backward'): _FUSED_BACKWARD,
    ('hopper', 'forward'): _FUSED_FORWARD,
    ('hopper', 'backward'): _FUSED_BACKWARD,
}

# As kernels/reference is written; a row of scores stays on chip, and its blocks have 32 rows and
# 64 columns.
_TWO_KERNELS = [
    Pass('dK, dV by columns', {'X': 2}, {'X': 2}, {'X': 2, 'r': 2}, {}, 64),
    Pass('dQ by rows', {'X': 2, 'r': 2}, {'X': 1}, {'X': 2}, {}, 32),
]
REFERENCE = {
    ('naive', 'forward'): [
        Pass('S', {'X': 2}, {'M': 1}),
        Pass('P = S', {'M': 1}, {'M': 1}),
        Pass('softmax', {'M': 1}, {'M': 1, 'r': 1}),
        Pass('O = P V', {'M': 1, 'X': 1}, {'X': 1}),
    ],
    ('naive', 'backward'): [
        Pass('P and slope', {'X': 2, 'r': 1}, {'M': 2}),
        Pass('dS', {'M': 2, 'X': 2, 'r': 1}, {'M': 1}),
        Pass('dV', {'M': 1, 'X': 1}, {'X': 1}),
    ] + _LAST_PRODUCTS,
    ('online_softmax', 'forward'): [Pass('rows', {'X': 1}, {'X': 1, 'r': 1}, {'X': 2}, {}, 1)],
    ('online_softmax', 'backward'): [
        Pass('rows', {'X': 2, 'r': 2}, {'X': 1}, {'X': 4}, {'X': 2}, 1)],
    ('flash_attention_1', 'forward'): [
        Pass('columns', {'X': 2}, {'X': 1, 'r': 3}, {'X': 2, 'r': 2}, {'X': 1, 'r': 2}, 64)],
    ('flash_attention_1', 'backward'): [
        Pass('columns', {'X': 2}, {'X': 2}, {'X': 3, 'r': 2}, {'X': 1}, 64)],
    ('flash_attention_2', 'forward'): [
        Pass('rows', {'X': 1}, {'X': 1, 'r': 1}, {'X': 2}, {}, 32)],
    ('flash_attention_2', 'backward'): _TWO_KERNELS,
}


def sizes(length, dim, element):
    """Bytes of each matrix of a head."""
    square, wide = length * length, length * dim
    return {'M4': 4 * square, 'M': element * square, 'X4': 4 * wide, 'X': element * wide,
            'r': 4 * length}


def _bytes(once, each, blocks, of):
    return sum(n * of[m] for m, n in once.items()) + blocks * sum(n * of[m]
                                                                  for m, n in each.items())


def traffic(passes, heads, length, dim, element):
    """Of all heads, nothing masked."""
    of = sizes(length, dim, element)
    reads = writes = 0
    for p in passes:
        blocks = -(-length // p.block) if p.block else 0
        reads += _bytes(p.reads, p.block_reads, blocks, of)
        writes += _bytes(p.writes, p.block_writes, blocks, of)
    return Traffic(heads * reads, heads * writes)


def least(direction, heads, length, dim, element):
    """Every tensor once: what nobody can do without."""
    of = sizes(length, dim, element)
    if direction == 'forward':
        return Traffic(heads * 3 * of['X'], heads * (of['X'] + of['r']))
    return Traffic(heads * (5 * of['X'] + of['r']), heads * 3 * of['X'])


def _terms(once, each, blocks):
    """As text: 2 X + T (X + 2 r)."""
    join = lambda of: ' + '.join(f'{n} {m}' if n > 1 else m
                                 for m in MATRICES for n in [of.get(m, 0)] if n)
    text = join(once)
    if each:
        text += (' + ' if text else '') + f'T ({join(each)})'
    return text.replace('T ', f'S/{blocks} ') if blocks > 1 else text.replace('T ', 'S ')


def _sum(dicts):
    total = {}
    for d in dicts:
        for m, n in d.items():
            total[m] = total.get(m, 0) + n
    return total


def formula(passes):
    """(reads, writes) of a head, as text."""
    blocked = [p for p in passes if p.block]
    sides = []
    for once, each in (('reads', 'block_reads'), ('writes', 'block_writes')):
        parts = [_terms(_sum(getattr(p, once) for p in passes), {}, 0)]
        parts += [_terms({}, getattr(p, each), p.block) for p in blocked if getattr(p, each)]
        sides.append(' + '.join(part for part in parts if part))
    return tuple(sides)


def score_passes(passes):
    """(reads, writes) of whole score matrices, whatever their type."""
    count = lambda of: of.get('M4', 0) + of.get('M', 0)
    return sum(count(p.reads) for p in passes), sum(count(p.writes) for p in passes)
