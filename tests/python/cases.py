"""Attention requests as a user of the .proto builds them, and their checks."""

import dataclasses

import numpy as np

import numerics
import reference
from reference import Mask, ORACLE, Problem

DTYPES = ("f32", "f16", "bf16")


def tensor(pb, array, dtype="f32"):
  """A Tensor message of the array's values, rounded to dtype."""
  return pb.Tensor(dtype=pb.DataType.Value("DATA_TYPE_" + dtype.upper()),
                   shape=np.shape(array), data=numerics.encode(dtype, array))


def array(pb, message):
  """(values as float32, name of the type) of a Tensor message."""
  dtype = pb.DataType.Name(message.dtype).removeprefix("DATA_TYPE_").lower()
  return numerics.decode(dtype, message.data, tuple(message.shape)), dtype


@dataclasses.dataclass
class Case:
  """A batch of sequences under one set of options."""
  layout: str = "BSHD"  # or BHSD, PACKED
  dtype: str = "f32"
  o_dtype: str | None = None
  q_lens: tuple = (5,)
  kv_lens: tuple = (5,)
  q_heads: int = 2
  kv_heads: int = 2
  head_dim: int = 8
  value_dim: int = 8
  padding: int = 0  # rows of NaN beyond the longest sequence
  scale: float | None = None
  softcap: float | None = None
  causal: bool = False
  left: int = -1
  right: int = -1
  q_starts: tuple = ()   # none, one or one per sequence
  kv_starts: tuple = ()
  q_stride: int = 1
  kv_stride: int = 1
  bias: str | None = None  # its type
  bias_shape: tuple = (1, 1)  # [1 or batch, 1 or q_heads]
  size: float = 1.0  # of Q and K: how peaked the softmax is
  seed: int = 0

  def __post_init__(self):
    rng = np.random.default_rng(self.seed)
    self.batch = len(self.q_lens)
    packed = self.layout == "PACKED"
    extra = 0 if packed else self.padding
    self.q_len = max(self.q_lens, default=0) + extra
    self.kv_len = max(self.kv_lens, default=0) + extra

    def values(*shape):
      return numerics.round_to(self.dtype, rng.standard_normal(shape))

    if self.bias:
      full = (*self.bias_shape, self.q_len, self.kv_len)
      self.bias_values = numerics.round_to(self.bias, rng.standard_normal(full))
    self.problems = [
        Problem(q=values(q_len, self.q_heads, self.head_dim) * self.size,
                k=values(kv_len, self.kv_heads, self.head_dim) * self.size,
                v=values(kv_len, self.kv_heads, self.value_dim),
                dtype=self.dtype, mask=self._mask(b), scale=self._scale(),
                softcap=self.softcap or 0.0,
                bias=self._bias(b, q_len, kv_len))
        for b, (q_len, kv_len) in enumerate(zip(self.q_lens, self.kv_lens))]
    for p in self.problems:
      p.q, p.k = (numerics.round_to(self.dtype, x) for x in (p.q, p.k))
    self.d_o = [values(q_len, self.q_heads, self.value_dim)
                for q_len in self.q_lens]
    self.d_lse = [rng.standard_normal((self.q_heads, q_len))
                  .astype(np.float32) for q_len in self.q_lens]
    self.compute_exact()

  def compute_exact(self):
    """Again after a change of the problems' values."""
    self.exact = [ORACLE.forward(p) for p in self.problems]
    # What a forward gives a backward: O in the input's type, LSE in f32.
    self.o = [numerics.round_to(self.dtype, o) for o, _ in self.exact]
    with np.errstate(over="ignore"):  # an LSE of a huge scale
      self.lse = [lse.astype(np.float32) for _, lse in self.exact]
    self.delta = [np.einsum("ihd,ihd->hi", d_o.astype(np.float64), o)
                  .astype(np.float32) for d_o, o in zip(self.d_o, self.o)]

  def _scale(self):
    # Through f32, as on the wire.
    return None if self.scale is None else float(np.float32(self.scale))

  def _mask(self, b):
    def own(starts):
      return starts[b % len(starts)] if starts else None
    kv_start = own(self.kv_starts)
    return Mask(self.causal, self.left, self.right, own(self.q_starts),
                0 if kv_start is None else kv_start,
                self.q_stride, self.kv_stride)

  def _bias(self, b, q_len, kv_len):
    if not self.bias:
      return None
    own = self.bias_values[b % self.bias_shape[0], :, :q_len, :kv_len]
    return np.broadcast_to(own, (self.q_heads, q_len, kv_len))

  # --- the request ---

  def join(self, parts, length):
    """Sequences [len, heads, dim] in the case's layout, padding NaN."""
    heads, dim = parts[0].shape[1:]
    if self.layout == "PACKED":
      return np.concatenate(parts)
    whole = np.full((self.batch, length, heads, dim), np.nan, np.float32)
    for b, part in enumerate(parts):
      whole[b, :part.shape[0]] = part
    return whole.transpose(0, 2, 1, 3) if self.layout == "BHSD" else whole

  def join_rows(self, parts):
    """LSE and its kin, [heads, len] each."""
    if self.layout == "PACKED":
      return np.concatenate(parts, axis=1)
    whole = np.full((self.batch, self.q_heads, self.q_len), np.nan, np.float32)
    for b, part in enumerate(parts):
      whole[b, :, :part.shape[1]] = part
    return whole

  def _fill(self, pb, request):
    q, k, v = (self.join([getattr(p, name) for p in self.problems], length)
               for name, length in (("q", self.q_len), ("k", self.kv_len),
                                    ("v", self.kv_len)))
    for name, value in (("q", q), ("k", k), ("v", v)):
      getattr(request, name).CopyFrom(tensor(pb, value, self.dtype))
    if self.bias:
      bias = self.bias_values.copy()
      if self.bias_shape[0] == self.batch:
        for b in range(self.batch):
          bias[b, :, self.q_lens[b]:] = np.nan
          bias[b, :, :, self.kv_lens[b]:] = np.nan
      request.bias.CopyFrom(tensor(pb, bias, self.bias))
    a = request.attention
    a.layout = pb.Layout.Value("LAYOUT_" + self.layout)
    if self.scale is not None:
      a.scale = self.scale
    if self.softcap is not None:
      a.softcap = self.softcap
    a.mask.causal = self.causal
    if self.left >= 0:
      a.mask.window_left = self.left
    if self.right >= 0:
      a.mask.window_right = self.right
    if self.layout == "PACKED" or set(self.q_lens) != {self.q_len}:
      a.q_lens.extend(self.q_lens)
    if self.layout == "PACKED" or set(self.kv_lens) != {self.kv_len}:
      a.kv_lens.extend(self.kv_lens)
    a.q_start.extend(self.q_starts)
    a.kv_start.extend(self.kv_starts)
    if self.q_stride != 1:
      a.q_stride = self.q_stride
    if self.kv_stride != 1:
      a.kv_stride = self.kv_stride
    return request

  def forward_request(self, pb):
    request = self._fill(pb, pb.ForwardRequest())
    if self.o_dtype:
      request.o.dtype = pb.DataType.Value("DATA_TYPE_" + self.o_dtype.upper())
    return request

  def backward_request(self, pb, with_delta=False, with_d_lse=False):
    request = self._fill(pb, pb.BackwardRequest())
    request.d_o.CopyFrom(tensor(pb, self.join(self.d_o, self.q_len),
                                self.dtype))
    request.lse.CopyFrom(tensor(pb, self.join_rows(self.lse)))
    if with_delta:
      request.delta.CopyFrom(tensor(pb, self.join_rows(self.delta)))
    else:
      request.o.CopyFrom(tensor(pb, self.join(self.o, self.q_len), self.dtype))
    if with_d_lse:
      request.d_lse.CopyFrom(tensor(pb, self.join_rows(self.d_lse)))
    return request

  # --- the response ---

  def split(self, whole, lens):
    """The sequences' own parts, and everything beyond their lengths."""
    if self.layout == "PACKED":
      return np.split(whole, np.cumsum(lens)[:-1]), np.zeros(0)
    if self.layout == "BHSD":
      whole = whole.transpose(0, 2, 1, 3)
    parts = [whole[b, :n] for b, n in enumerate(lens)]
    rest = [whole[b, n:].ravel() for b, n in enumerate(lens)]
    return parts, np.concatenate(rest)

  def split_rows(self, whole):
    if self.layout == "PACKED":
      return np.split(whole, np.cumsum(self.q_lens)[:-1], axis=1), np.zeros(0)
    parts = [whole[b, :, :n] for b, n in enumerate(self.q_lens)]
    rest = [whole[b, :, n:].ravel() for b, n in enumerate(self.q_lens)]
    return parts, np.concatenate(rest)

  def check_forward(self, test, pb, response):
    """Fails `test` unless O and LSE are the oracle's, within the limits."""
    o, o_dtype = array(pb, response.o)
    lse, lse_dtype = array(pb, response.lse)
    test.assertEqual(o_dtype, self.o_dtype or self.dtype)
    test.assertEqual(lse_dtype, "f32")
    test.assertEqual(o.shape, self.join(self.o, self.q_len).shape)
    test.assertEqual(lse.shape, self.join_rows(self.lse).shape)
    o, beyond = self.split(o, self.q_lens)
    test.assertTrue((beyond == 0).all(), "O past a sequence's length is not 0")
    lse, beyond = self.split_rows(lse)
    test.assertTrue(np.isneginf(beyond).all(),
                    "LSE past a sequence's length is not -inf")
    bounds = reference.Bound(o_dtype), reference.Bound("f32")
    for p, exact, got in zip(self.problems, self.exact, zip(o, lse)):
      plain = [c.forward(p) for c in reference.plain(self.dtype)]
      terms = reference.Terms(p).forward(exact[1])
      for bound, *values in zip(bounds, got, exact, zip(*plain), terms):
        bound.add(*values)
    for name, bound in zip(("o", "lse"), bounds):
      test.assertIsNone(bound.failure(), name)

  def check_backward(self, test, pb, response, with_delta=False,
                     with_d_lse=False):
    """Fails `test` unless dQ, dK, dV are the oracle's, within the limits."""
    bounds = [reference.Bound(self.dtype) for _ in range(3)]
    got = []
    for name, lens in (("dq", self.q_lens), ("dk", self.kv_lens),
                       ("dv", self.kv_lens)):
      whole, dtype = array(pb, getattr(response, name))
      test.assertEqual(dtype, self.dtype)
      parts, beyond = self.split(whole, lens)
      test.assertTrue((beyond == 0).all(),
                      f"{name} past a sequence's length is not 0")
      got.append(parts)
    for b, p in enumerate(self.problems):
      given = {"lse": self.lse[b],
               "d_lse": self.d_lse[b] if with_d_lse else None}
      given |= {"delta": self.delta[b]} if with_delta else {"o": self.o[b]}
      exact = ORACLE.backward(p, self.d_o[b], **given)
      plain = [c.backward(p, self.d_o[b], **given)
               for c in reference.plain(self.dtype)]
      terms = reference.Terms(p).backward(self.d_o[b], **given)
      for bound, *values in zip(bounds, (g[b] for g in got), exact,
                                zip(*plain), terms):
        bound.add(*values)
    for name, bound in zip(("dq", "dk", "dv"), bounds):
      test.assertIsNone(bound.failure(), name)


def random_case(rng):
  """Any layout, type, lengths (odd, empty, unequal), heads, dims and mask."""
  pick = lambda *options: options[rng.integers(len(options))]
  batch = int(pick(1, 1, 2, 3))
  ragged = batch > 1 and pick(True, False)

  def lengths():
    longest = int(pick(1, 2, 7, 17, 33, 63, 64, 65, 77, 129))
    if not ragged:
      return (longest,) * batch
    return tuple(int(n) for n in rng.integers(0, longest + 1, batch))

  def starts(span):
    count = pick(0, 0, 1, batch)
    return tuple(int(n) for n in rng.integers(-span, span + 1, count))

  kv_heads = int(pick(1, 2, 3))
  dtype = pick(*DTYPES)
  bias = pick(None, None, "f32", dtype)
  q_heads = kv_heads * int(pick(1, 1, 2, 4))
  return Case(
      layout=pick("BSHD", "BHSD", "PACKED"), dtype=dtype,
      o_dtype=pick(None, None, "f32"), q_lens=lengths(), kv_lens=lengths(),
      q_heads=q_heads, kv_heads=kv_heads,
      head_dim=int(pick(1, 5, 8, 32, 64, 80, 96, 128)),
      value_dim=int(pick(1, 3, 16, 32, 64, 72, 128)),
      padding=int(pick(0, 3)),
      scale=pick(None, None, 0.3, -0.2, 0.0),
      softcap=pick(None, None, None, 2.0, 30.0),
      causal=bool(pick(True, False)), left=int(pick(-1, -1, 0, 5, 40)),
      right=int(pick(-1, -1, 0, 3)), q_starts=starts(20),
      kv_starts=starts(20), q_stride=int(pick(1, 1, 1, 2, 4)),
      kv_stride=int(pick(1, 1, 1, 3)), bias=bias,
      bias_shape=(pick(1, batch), pick(1, q_heads)),
      size=pick(0.5, 1.0, 3.0), seed=int(rng.integers(2 ** 31)))
