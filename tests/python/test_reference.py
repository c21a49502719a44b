"""The float64 oracle against finite differences and a real model."""

import pathlib
import tempfile
import unittest

import numpy as np

import cases
import harness
import numerics
import reference
from reference import Mask, ORACLE, Problem

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"


def random_problem(rng, q_len=5, kv_len=7, q_heads=4, kv_heads=2, head_dim=3,
                   value_dim=5, **options):
  return Problem(q=rng.standard_normal((q_len, q_heads, head_dim)),
                 k=rng.standard_normal((kv_len, kv_heads, head_dim)),
                 v=rng.standard_normal((kv_len, kv_heads, value_dim)),
                 **options)


class ReferenceTest(unittest.TestCase):

  def setUp(self):
    self.rng = np.random.default_rng(20)

  def test_gradients_are_those_of_finite_differences(self):
    cases = {
        "full": {},
        "softcap": {"softcap": 1.5},
        "scale": {"scale": -0.7},
        "causal": {"mask": Mask(causal=True)},
        "window and strides": {"mask": Mask(left=3, right=1, q_start=2,
                                            q_stride=2, kv_stride=1)},
        "empty rows": {"mask": Mask(causal=True, q_start=-2)},
        "bias": {"bias": self.rng.standard_normal((4, 5, 7)), "softcap": 2.0},
    }
    for name, options in cases.items():
      with self.subTest(name):
        p = random_problem(self.rng, **options)
        d_o = self.rng.standard_normal((5, 4, 5))
        d_lse = self.rng.standard_normal((4, 5))
        o, lse = ORACLE.forward(p)
        d_lse[np.isneginf(lse)] = 0
        gradients = ORACLE.backward(p, d_o, lse, o=o, d_lse=d_lse)

        def loss():
          o, lse = ORACLE.forward(p)
          return (o * d_o).sum() + (np.where(np.isneginf(lse), 0, lse)
                                    * d_lse).sum()

        for x, gradient in zip((p.q, p.k, p.v), gradients):
          numeric = np.zeros_like(x)
          # Balances truncation (step^2) against rounding (2^-53 / step).
          step = 2.0 ** -17
          for at in np.ndindex(x.shape):
            kept = x[at]
            x[at] = kept + step
            above = loss()
            x[at] = kept - step
            below = loss()
            x[at] = kept
            numeric[at] = (above - below) / (2 * step)
          np.testing.assert_allclose(gradient, numeric, rtol=1e-7, atol=1e-7)

  def test_delta_stands_for_the_output(self):
    p = random_problem(self.rng, mask=Mask(causal=True))
    d_o = self.rng.standard_normal((5, 4, 5))
    o, lse = ORACLE.forward(p)
    delta = np.einsum("ihd,ihd->hi", d_o, o)
    for a, b in zip(ORACLE.backward(p, d_o, lse, o=o),
                    ORACLE.backward(p, d_o, lse, delta=delta)):
      np.testing.assert_array_equal(a, b)

  def test_masks_are_their_definition(self):
    for _ in range(50):
      mask = Mask(causal=bool(self.rng.integers(2)),
                  left=int(self.rng.integers(-1, 4)),
                  right=int(self.rng.integers(-1, 4)),
                  q_start=int(self.rng.integers(-5, 6)),
                  kv_start=int(self.rng.integers(-5, 6)),
                  q_stride=int(self.rng.integers(1, 4)),
                  kv_stride=int(self.rng.integers(1, 4)))
      seen = mask.visible(4, 6)
      for i in range(4):
        for j in range(6):
          distance = (mask.kv_start + j * mask.kv_stride
                      - mask.q_start - i * mask.q_stride)
          self.assertEqual(seen[i, j],
                           (not mask.causal or distance <= 0)
                           and (mask.left < 0 or distance >= -mask.left)
                           and (mask.right < 0 or distance <= mask.right))

  def test_default_positions_align_the_last_row_with_the_last_column(self):
    seen = Mask(causal=True).visible(2, 5)
    np.testing.assert_array_equal(seen.sum(axis=1), [4, 5])

  def test_rows_that_see_nothing_are_zero_with_infinite_lse(self):
    p = random_problem(self.rng, mask=Mask(causal=True, q_start=-3))
    o, lse = ORACLE.forward(p)
    np.testing.assert_array_equal(o[:3], 0)
    self.assertTrue(np.isneginf(lse[:, :3]).all())
    self.assertTrue(np.isfinite(lse[:, 3:]).all())

  def test_the_oracle_gives_what_the_model_gave(self):
    for layer in (0, 5):
      load = lambda name: np.load(DATA / f"minilm/layer{layer}/{name}.npy")[0]
      p = Problem(q=load("q"), k=load("k"), v=load("v"))
      o, lse = ORACLE.forward(p)
      gradients = ORACLE.backward(p, load("d_o"), lse, o=o)
      np.testing.assert_array_equal(lse.astype(np.float32), load("lse"))
      for name, exact in zip(("o", "dq", "dk", "dv"), (o, *gradients)):
        with self.subTest(layer=layer, name=name):
          error = np.abs(load(name) - exact).max() / np.abs(exact).max()
          self.assertLess(error, 1e-6)  # README: at most 6.1e-7


class BoundTest(unittest.TestCase):
  """The limit lets every plain computation pass and stops a worse one."""

  def bound(self, dtype, result, p):
    bound = reference.Bound(dtype)
    exact, _ = ORACLE.forward(p)
    plains = [c.forward(p)[0] for c in reference.plain(dtype)]
    bound.add(numerics.round_to(dtype, result), exact, plains)
    return bound.failure()

  def test_of_plain_and_wrong_outputs(self):
    rng = np.random.default_rng(3)
    for dtype in ("f32", "f16", "bf16"):
      with self.subTest(dtype):
        p = random_problem(rng, q_len=17, kv_len=33, head_dim=16, dtype=dtype)
        p.q, p.k, p.v = (numerics.round_to(dtype, x) for x in (p.q, p.k, p.v))
        o, _ = reference.Computation(np.float32, dtype).forward(p)
        self.assertIsNone(self.bound(dtype, o, p))
        unit = numerics.HALF_ULP[dtype]
        self.assertIsNotNone(self.bound(dtype, o * (1 + 16 * unit), p))
        wrong = o.copy()
        wrong[3, 1, 2] += 32 * unit * np.abs(o).max()
        self.assertIn("error", self.bound(dtype, wrong, p))
        wrong[3, 1, 2] = np.nan
        self.assertIn("is nan", self.bound(dtype, wrong, p))


class CasesTest(unittest.TestCase):
  """The checks of test_numbers.py, on answers made here."""

  def answer(self, pb, case, computation, nudge=0.0):
    """(forward response, backward response), nudge added to one element."""
    o, lse = zip(*(computation.forward(p) for p in case.problems))
    d = [computation.backward(p, *given) for p, *given in zip(
        case.problems, case.d_o, case.lse, case.o)]
    dq, dk, dv = zip(*d)
    for part in (o, lse, dq, dk, dv):
      largest = max(part, key=np.size)
      if largest.size and np.isfinite(largest.flat[0]):
        largest.flat[0] += nudge * max(1.0, abs(largest.flat[0]))

    def rows(fill, x):
      return np.where(np.isnan(x), fill, x)

    join = lambda parts, length: rows(0, case.join(parts, length))
    t = lambda x, dtype=case.dtype: cases.tensor(pb, x, dtype)
    return (pb.ForwardResponse(o=t(join(o, case.q_len),
                                   case.o_dtype or case.dtype),
                               lse=t(rows(-np.inf, case.join_rows(lse)),
                                     "f32")),
            pb.BackwardResponse(dq=t(join(dq, case.q_len)),
                                dk=t(join(dk, case.kv_len)),
                                dv=t(join(dv, case.kv_len))))

  def test_plain_answers_pass_and_nudged_ones_fail(self):
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as folder:
      pb, _ = harness.generate_stubs(folder)
    for _ in range(40):
      case = cases.random_case(rng)
      computation = reference.Computation(np.float32, case.dtype)
      with self.subTest(case=case):
        forward, backward = self.answer(pb, case, computation)
        case.check_forward(self, pb, forward)
        case.check_backward(self, pb, backward)
        if sum(case.q_lens) and sum(case.kv_lens):
          forward, backward = self.answer(pb, case, computation, nudge=1.0)
          with self.assertRaises(AssertionError):
            case.check_forward(self, pb, forward)
          with self.assertRaises(AssertionError):
            case.check_backward(self, pb, backward)
        self.assertTrue(case.forward_request(pb).IsInitialized())


class NumericsTest(unittest.TestCase):

  def test_rounding_is_to_nearest_even(self):
    ulp = 2.0 ** -7
    values = np.array([1, 1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, -1e38,
                       np.inf, 0])
    want = np.array([1, 1, 1 + 2 * ulp, 1 + ulp, -1e38, np.inf, 0])
    got = numerics.round_to("bf16", values)
    np.testing.assert_allclose(got, want, rtol=2.0 ** -8)
    np.testing.assert_array_equal(got[:4], want[:4].astype(np.float32))
    self.assertTrue(np.isnan(numerics.round_to("bf16", [np.nan])).all())

  def test_bytes_and_values_convert_both_ways(self):
    rng = np.random.default_rng(4)
    for dtype, size in numerics.ITEM_BYTES.items():
      x = numerics.round_to(dtype, rng.standard_normal((3, 5)))
      data = numerics.encode(dtype, x)
      self.assertEqual(len(data), x.size * size)
      np.testing.assert_array_equal(numerics.decode(dtype, data, (3, 5)), x)


if __name__ == "__main__":
  unittest.main()
