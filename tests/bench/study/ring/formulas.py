"""The formulas of ring attention as they are written down, in f32, against float64: softmax by its
log-sum-exp, results over blocks put together, and which tokens a device has."""

import numpy as np

F32, F64 = np.float32, np.float64


def lse(x):
    """ln of the sum of exp(x) of each row, in x's type."""
    most = x.max(axis=-1)
    return most + np.log(np.exp(x - most[..., None]).sum(axis=-1))


def softmax(x):
    """By its definition, the largest score taken out first."""
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def softmax_by_lse(x):
    return np.exp(x - lse(x)[..., None])


def sigmoid(x):
    with np.errstate(over='ignore'):  # exp is infinite then, and the result the right one, 0
        return 1 / (1 + np.exp(-x))


def log_sigmoid(x):
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


# -- ways to put results over a block to those so far: (out, lse) of both


def merge_by_exp(out, so_far, block_out, block):
    """The first one that is printed."""
    new = so_far + np.log(1 + np.exp(block - so_far))
    return np.exp(so_far - new) * out + np.exp(block - new) * block_out, new


def merge_by_sigmoid(out, so_far, block_out, block):
    """The second one, which is the code that is used."""
    return (out - sigmoid(block - so_far) * (out - block_out),
            so_far - log_sigmoid(so_far - block))


def merge_as_derived(out, so_far, block_out, block):
    """The last two lines of its derivation as they are printed."""
    return (out - sigmoid(so_far - block) * (out - block_out),
            so_far - log_sigmoid(block - so_far))


def narrow(*values):
    """An f32 array of each: a number alone would be computed with in f64."""
    return [np.array([value], F32) for value in values]


def overflows_from(merge, most=1e4):
    """The least lse of a block above that so far with which f32 results are not finite; None if
    there is none up to `most`."""
    low, high = F32(0), F32(most)
    finite = lambda d: bool(np.isfinite(merge(*narrow(1, 0, 2, d))).all())
    with np.errstate(all='ignore'):
        if finite(high):
            return None
        while True:
            middle = F32((low + high) / 2)
            if middle in (low, high):
                return float(high)
            low, high = (middle, high) if finite(middle) else (low, middle)


# -- attention over shards


def partial(q, k, v):
    """A / B over some columns, and their log-sum-exp."""
    x = q @ k.T / q.dtype.type(np.sqrt(q.shape[-1]))
    most = x.max(axis=-1, keepdims=True)
    weights = np.exp(x - most)
    b = weights.sum(axis=-1, keepdims=True)
    return weights @ v / b, (most + np.log(b))[:, 0]


def over_shards(q, k, v, shards, merge=merge_by_sigmoid):
    """Columns in shards, put together one after another."""
    blocks = zip(np.array_split(k, shards), np.array_split(v, shards))
    out, so_far = partial(q, *next(blocks))
    for block in blocks:
        block_out, block_lse = partial(q, *block)
        out, new = merge(out, so_far[:, None], block_out, block_lse[:, None])
        so_far = new[:, 0]
    return out, so_far


# -- which tokens a device has


def striped_tokens(tokens, rank, world):
    """Split into pieces of `world`, stacked and transposed: what piece holds at `rank`."""
    return np.stack(np.split(tokens, len(tokens) // world)).T[rank]


def zigzag_tokens(tokens, rank, world):
    chunks = np.split(tokens, 2 * world)
    return np.concatenate([chunks[rank], chunks[2 * world - 1 - rank]])


# -- what comes of them


def _largest(a, b):
    return float(np.max(np.abs(np.asarray(a, F64) - np.asarray(b, F64))))


def _softmax(random):
    x = random.uniform(-1e4, 1e4, (64, 512)).astype(F32)
    exact = softmax(x.astype(F64))
    by_lse = softmax_by_lse(x)
    relative = lambda p: float(np.max(np.abs(p.max(axis=-1) / exact.max(axis=-1) - 1)))
    with np.errstate(all='ignore'):
        plain = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    return {'scores': 1e4, 'finite': bool(np.isfinite(by_lse).all()),
            'plain_finite': bool(np.isfinite(plain).all()),
            'zeros': int((by_lse == 0).sum()), 'elements': int(x.size),
            'error_by_lse': relative(by_lse), 'error': relative(softmax(x))}


def _gradient(random):
    x, step = random.normal(0, 3, 64), 1e-5
    found = [(lse(x + step * unit) - lse(x - step * unit)) / (2 * step) for unit in np.eye(64)]
    return {'step': step, 'error': _largest(found, softmax(x))}


def _recurrence(random):
    """softmax over two blocks from those of each."""
    x = random.normal(0, 5, (64, 256)).astype(F32)
    exact = softmax(x.astype(F64))
    left, right = x[:, :100], x[:, 100:]
    d = (lse(left) - lse(right))[:, None]
    blocks = np.concatenate([softmax(left) * sigmoid(d), softmax(right) * sigmoid(-d)], axis=1)
    return {'error': _largest(blocks, exact), 'plain_error': _largest(softmax(x), exact)}


def _exact(random):
    """By shards, how far results are from float64 over all columns."""
    q, k, v = (random.normal(size=(250, 64)) for _ in range(3))
    exact = partial(q, k, v)[0]
    in_f32 = [a.astype(F32) for a in (q, k, v)]
    rows = []
    for shards in range(1, 9):
        by_rows = np.concatenate([partial(some, k, v)[0] for some in np.array_split(q, shards)])
        rows.append({'shards': shards, 'f32': _largest(over_shards(*in_f32, shards)[0], exact),
                     'f64': _largest(over_shards(q, k, v, shards)[0], exact),
                     'rows_f64': _largest(by_rows, exact)})
    return rows


def _merges(random):
    out, block_out = random.normal(size=(2, 1000)).astype(F32)
    so_far, block = random.normal(0, 10, (2, 1000)).astype(F32)
    first = merge_by_exp(out, so_far, block_out, block)
    second = merge_by_sigmoid(out, so_far, block_out, block)
    one = lambda merge: float(merge(*narrow(2, 1.7, 5, 0))[0][0])
    nothing = narrow(0, -np.inf, 0, -np.inf)
    with np.errstate(all='ignore'):
        empty = {name: bool(np.isnan(merge(*nothing)).all())
                 for name, merge in (('exp', merge_by_exp), ('sigmoid', merge_by_sigmoid))}
    return {'difference': max(map(_largest, first, second)),
            'overflow': {'exp': overflows_from(merge_by_exp),
                         'sigmoid': overflows_from(merge_by_sigmoid)},
            'example': {'out': 2, 'lse': 1.7, 'block_out': 5, 'block_lse': 0,
                        'exp': one(merge_by_exp), 'sigmoid': one(merge_by_sigmoid),
                        'derived': one(merge_as_derived)},
            'empty_is_nan': empty}


def run():
    random = np.random.default_rng(1)
    tokens = np.arange(64)
    return {'softmax': _softmax(random), 'gradient': _gradient(random),
            'recurrence': _recurrence(random), 'exact': _exact(random), 'merges': _merges(random),
            'tokens': {'striped': striped_tokens(tokens, 1, 8).tolist(),
                       'zigzag': zigzag_tokens(tokens, 1, 8).tolist()}}
