"""Attention by its formulas, one sequence at a time, in float64 or float32.

Arrays are [length, heads, dim]; LSE and delta are [heads, length]. The float64
run is the oracle. The float32 run, with P and dS rounded to the input type, is
the plain computation whose own error says how much error is fair: `Bound` turns
it into a limit, so that no test holds a made-up epsilon.
"""

import dataclasses

import numpy as np

import numerics


@dataclasses.dataclass
class Mask:
  """Which key columns a query row sees. -1 in a window is 'no limit'."""
  causal: bool = False
  left: int = -1
  right: int = -1
  q_start: int | None = None  # default: kv_len - q_len, the bottom right
  kv_start: int = 0
  q_stride: int = 1
  kv_stride: int = 1

  def visible(self, q_len, kv_len):
    """[q_len, kv_len], true where the row sees the column."""
    q_start = kv_len - q_len if self.q_start is None else self.q_start
    row = (q_start + np.arange(q_len) * self.q_stride)[:, None]
    column = (self.kv_start + np.arange(kv_len) * self.kv_stride)[None, :]
    seen = np.ones((q_len, kv_len), dtype=bool)
    if self.causal:
      seen &= column <= row
    if self.left >= 0:
      seen &= column >= row - self.left
    if self.right >= 0:
      seen &= column <= row + self.right
    return seen


@dataclasses.dataclass
class Problem:
  """One sequence's attention; values already rounded to dtype."""
  q: np.ndarray  # [q_len, q_heads, head_dim]
  k: np.ndarray  # [kv_len, kv_heads, head_dim]
  v: np.ndarray  # [kv_len, kv_heads, value_dim]
  dtype: str = "f32"
  mask: Mask = dataclasses.field(default_factory=Mask)
  scale: float | None = None
  softcap: float = 0.0
  bias: np.ndarray | None = None  # [q_heads, q_len, kv_len]


def _per_kv_head(x, kv_heads):
  """Sums over the query heads that share a head of K and V."""
  return x.reshape(x.shape[0], kv_heads, x.shape[1] // kv_heads,
                   x.shape[2]).sum(axis=2)


class Computation:
  """One way to compute: its working type, what P and dS are rounded to, order.

  `reverse` runs over the keys from the last, `late` divides by the row's sum
  after the product with V instead of before it: equally plain ways, whose
  errors differ.
  """

  def __init__(self, work, rounding="f32", reverse=False, late=False):
    self.work, self.rounding = work, rounding
    self.reverse, self.late = reverse, late

  def _round(self, x):
    if self.work is np.float64:
      return x
    return numerics.round_to(self.rounding, x)

  def _prepare(self, p):
    """Q, K, V, capped scores, their slope and visibility, keys in order."""
    work = self.work
    q_heads, head_dim = p.q.shape[1:]
    group = q_heads // p.k.shape[1]
    q = p.q.astype(work)
    k = np.repeat(p.k.astype(work), group, axis=1)
    v = np.repeat(p.v.astype(work), group, axis=1)
    seen = p.mask.visible(p.q.shape[0], p.k.shape[0])
    bias = None if p.bias is None else p.bias.astype(work)
    if self.reverse:
      k, v, seen = k[::-1], v[::-1], seen[:, ::-1]
      bias = None if bias is None else bias[..., ::-1]
    scale = head_dim ** -0.5 if p.scale is None else p.scale
    s = work(scale) * np.einsum("ihd,jhd->hij", q, k)
    slope = None
    if p.softcap:
      t = np.tanh(s / work(p.softcap))
      s, slope = work(p.softcap) * t, work(1) - t * t
    if bias is not None:
      s = s + bias
    s = np.where(seen, s, work(-np.inf))
    return q, k, v, s, slope, work(scale)

  def forward(self, p):
    """O [q_len, q_heads, value_dim] and LSE [q_heads, q_len]."""
    _, _, v, s, _, _ = self._prepare(p)
    top = s.max(axis=-1, initial=-np.inf)
    empty = np.isneginf(top)
    safe = np.where(empty, self.work(0), top)
    e = np.exp(s - safe[..., None])
    total = e.sum(axis=-1)
    divisor = np.where(empty, self.work(1), total)
    if self.late:
      o = np.einsum("hij,jhd->ihd", self._round(e), v) / divisor.T[..., None]
    else:
      o = np.einsum("hij,jhd->ihd", self._round(e / divisor[..., None]), v)
    with np.errstate(divide="ignore"):
      lse = np.where(empty, self.work(-np.inf), safe + np.log(divisor))
    return o, lse

  def backward(self, p, d_o, lse, o=None, delta=None, d_lse=None):
    """dQ, dK, dV in the shapes of Q, K, V; takes O or delta."""
    work = self.work
    q, k, v, s, slope, scale = self._prepare(p)
    d_o = d_o.astype(work)
    if delta is None:
      delta = np.einsum("ihd,ihd->hi", d_o, o.astype(work))
    delta = delta.astype(work)
    if d_lse is not None:
      delta = delta - d_lse.astype(work)
    lse = lse.astype(work)
    safe = np.where(np.isneginf(lse), work(0), lse)
    prob = np.where(np.isneginf(lse)[..., None], work(0),
                    np.exp(s - safe[..., None]))
    dp = np.einsum("ihd,jhd->hij", d_o, v)
    ds = prob * (dp - delta[..., None])
    if slope is not None:
      ds = ds * slope
    ds = self._round(ds)
    dq = scale * np.einsum("hij,jhd->ihd", ds, k)
    dk = scale * np.einsum("hij,ihd->jhd", ds, q)
    dv = np.einsum("hij,ihd->jhd", self._round(prob), d_o)
    if self.reverse:
      dk, dv = dk[::-1], dv[::-1]

    kv_heads = p.k.shape[1]
    return dq, _per_kv_head(dk, kv_heads), _per_kv_head(dv, kv_heads)


ORACLE = Computation(np.float64)


def plain(rounding):
  """The plain computations in float32 whose largest error sets the limit."""
  return [Computation(np.float32, rounding, reverse, late)
          for reverse in (False, True) for late in (False, True)]


class Terms:
  """Sizes of what the results are sums of, before any of it cancels.

  A score, dP - delta or a whole sum can vanish (with one key dS always does)
  where its terms do not; the rounding of the terms is then all that remains of
  the result. In float64, all positive.
  """

  def __init__(self, p):
    # A bias of -inf hides its column: nothing of it is rounded.
    def sized(x):
      return None if x is None else np.where(np.isinf(x), 0, np.abs(x))

    flat = dataclasses.replace(p, q=np.abs(p.q), k=np.abs(p.k), v=np.abs(p.v),
                               scale=sized(p.scale), bias=sized(p.bias),
                               softcap=0.0)
    self._q, self._k, self._v, s, _, self._scale = ORACLE._prepare(flat)
    self._p = p
    # A score of rounding error r changes P by the factor 1 + r.
    self._score = np.where(np.isneginf(s), 0, s).max(axis=-1, initial=0)

  def _probabilities(self, lse):
    s = ORACLE._prepare(self._p)[3]
    safe = np.where(np.isneginf(lse), 0.0, lse.astype(np.float64))[..., None]
    with np.errstate(over="ignore"):
      prob = np.exp(s - safe)
    return np.where(np.isneginf(lse)[..., None], 0.0, prob)

  def forward(self, lse):
    """Of O and LSE."""
    row = 1 + self._score
    prob = self._probabilities(lse) * row[..., None]
    o = np.einsum("hij,jhd->ihd", prob, self._v)
    return o, row + np.where(np.isneginf(lse), 0, np.abs(lse))

  def backward(self, d_o, lse, o=None, delta=None, d_lse=None):
    """Of dQ, dK and dV."""
    d_o = np.abs(d_o).astype(np.float64)
    if delta is None:
      delta = np.einsum("ihd,ihd->hi", d_o, np.abs(o))
    size = np.abs(delta) + (0 if d_lse is None else np.abs(d_lse))
    row = 1 + self._score + np.where(np.isneginf(lse), 0, np.abs(lse))
    prob = self._probabilities(lse) * row[..., None]
    dp = np.einsum("ihd,jhd->hij", d_o, self._v)
    ds = prob * (dp + size[..., None])
    dq = self._scale * np.einsum("hij,jhd->ihd", ds, self._k)
    dk = self._scale * np.einsum("hij,ihd->jhd", ds, self._q)
    dv = np.einsum("hij,ihd->jhd", prob, d_o)
    kv_heads = self._p.k.shape[1]
    return dq, _per_kv_head(dk, kv_heads), _per_kv_head(dv, kv_heads)


class Bound:
  """Collects outputs against the oracle and plain runs; then says yes or no.

  Maximum error at most 2 times, and RMS at most 1.5 times, that of the worst
  plain computation, plus one rounding of the output to its type and one f32
  rounding of the terms it is made of.
  """

  def __init__(self, dtype):
    self._dtype = dtype
    self._got, self._exact, self._terms = [], [], []
    self._plain = None

  def add(self, got, exact, plains, terms=None):
    """One sequence's output [..]; shapes all equal."""
    assert got.shape == exact.shape, (got.shape, exact.shape)
    flat = lambda x: np.asarray(x, dtype=np.float64).ravel()
    self._got.append(flat(got))
    self._exact.append(flat(exact))
    self._terms.append(flat(np.abs(exact) if terms is None else terms))
    plains = [flat(numerics.round_to(self._dtype, x)) for x in plains]
    if self._plain is None:
      self._plain = [[] for _ in plains]
    for store, values in zip(self._plain, plains):
      store.append(values)

  def failure(self):
    """None, or what is wrong in one line."""
    got, exact = np.concatenate(self._got), np.concatenate(self._exact)
    if got.size == 0:
      return None
    infinite = ~np.isfinite(exact)
    if not np.array_equal(got[infinite], exact[infinite]):
      return "infinite values in other places than the oracle's"
    finite = ~infinite
    if not np.isfinite(got[finite]).all():
      at = int(np.flatnonzero(finite & ~np.isfinite(got))[0])
      return f"element {at} is {got[at]}, the oracle has {exact[at]}"
    if not finite.any():
      return None
    difference = lambda x: np.abs(np.where(finite, x, 0)
                                  - np.where(finite, exact, 0))
    error = difference(got)
    rms = lambda e: float(np.sqrt(np.mean(e[finite] ** 2)))
    worst_plain = worst_rms = 0.0
    for values in self._plain:
      e = difference(np.concatenate(values))
      worst_plain = max(worst_plain, float(e.max()))
      worst_rms = max(worst_rms, rms(e))
    terms = np.where(finite, np.concatenate(self._terms), 0.0)
    size = np.where(finite, np.abs(exact), 0.0)
    # Twice: the terms are rounded, and so is what they are subtracted from.
    unit, f32 = numerics.HALF_ULP[self._dtype], 2 * numerics.HALF_ULP["f32"]
    limit = 2 * worst_plain + unit * size.max() + f32 * terms.max()
    limit_rms = 1.5 * worst_rms + unit * rms(size) + f32 * rms(terms)
    at = int(error.argmax())
    if error[at] > limit:
      return (f"element {at}: {got[at]} against {exact[at]}, error "
              f"{error[at]:.2e}, limit {limit:.2e}")
    if rms(error) > limit_rms:
      return f"RMS error {rms(error):.2e}, limit {limit_rms:.2e}"
    return None
