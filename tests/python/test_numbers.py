#!/usr/bin/env python3
"""What attnd computes, against numpy in float64.

    python3 tests/python/test_numbers.py --server=build/release/server/attnd
"""

import grpc
import numpy as np

import cases
import client
import harness
import numerics
from cases import Case
from client import pb


class NumericTest(client.ClientTest):

  def check(self, case):
    case.check_forward(self, pb, self.forward(case.forward_request(pb)))
    for with_delta in (False, True):
      request = case.backward_request(pb, with_delta, with_d_lse=with_delta)
      case.check_backward(self, pb, self.backward(request), with_delta,
                          with_d_lse=with_delta)

  def test_random_requests_are_the_oracle_s_within_limits(self):
    rng = np.random.default_rng(client.OPTIONS.seed)
    for _ in range(client.OPTIONS.cases):
      case = cases.random_case(rng)
      with self.subTest(case=case):
        self.check(case)

  def test_each_layout_and_type(self):
    for layout in ("BSHD", "BHSD", "PACKED"):
      for dtype in cases.DTYPES:
        with self.subTest(layout=layout, dtype=dtype):
          self.check(Case(layout=layout, dtype=dtype, q_lens=(67, 3, 0, 31),
                          kv_lens=(67, 45, 9, 0), q_heads=6, kv_heads=2,
                          head_dim=40, value_dim=24, causal=True, padding=2))

  def test_largest_dims(self):
    self.check(Case(q_lens=(9,), kv_lens=(33,), head_dim=256, value_dim=256))

  def test_rows_that_see_nothing(self):
    case = Case(q_lens=(7,), kv_lens=(5,), causal=True)  # q_start is -2
    response = self.forward(case.forward_request(pb))
    o, _ = cases.array(pb, response.o)
    lse, _ = cases.array(pb, response.lse)
    self.assertTrue((o[0, :2] == 0).all())
    self.assertTrue(np.isneginf(lse[0, :, :2]).all())
    self.check(case)

  def test_nothing_at_all(self):
    for q_lens, kv_lens in (((0,), (5,)), ((5,), (0,)), ((0,), (0,))):
      for layout in ("BSHD", "BHSD", "PACKED"):
        with self.subTest(q_lens=q_lens, kv_lens=kv_lens, layout=layout):
          self.check(Case(layout=layout, q_lens=q_lens, kv_lens=kv_lens))

  def test_each_algorithm(self):
    case = Case(q_lens=(33, 20), kv_lens=(65, 40), causal=True, q_heads=4,
                left=20)
    for name, number in pb.Algorithm.items():
      with self.subTest(name):
        request = case.forward_request(pb)
        request.options.algorithm = number
        try:
          response = self.forward(request)
        except grpc.RpcError as error:
          self.fail(error.details())
        case.check_forward(self, pb, response)
        if number:
          self.assertEqual(response.report.algorithm, number)

  def test_any_finite_scale_gives_finite_results(self):
    for algorithm in pb.Algorithm.values():
      for scale in (1e30, -1e30, 3.4e38, -3.4e38):
        with self.subTest(algorithm=algorithm, scale=scale):
          case = Case(q_lens=(33,), kv_lens=(40,), scale=scale)
          request = case.forward_request(pb)
          request.options.algorithm = algorithm
          response = self.forward(request)
          for message in (response.o, response.lse):
            self.assertTrue(np.isfinite(cases.array(pb, message)[0]).all())

  def test_a_bias_of_minus_infinity_hides_its_column(self):
    rng = np.random.default_rng(9)
    for algorithm in pb.Algorithm.values():
      for dtype in cases.DTYPES:
        case = Case(dtype=dtype, q_lens=(70,), kv_lens=(90,), q_heads=4,
                    softcap=5.0, bias=dtype)
        bias = case.bias_values[0, 0]
        bias[rng.random(bias.shape) < 0.5] = -np.inf
        bias[:, 60:] = -np.inf  # a whole tile's last columns
        bias[10:20] = -np.inf  # rows that see nothing
        case.compute_exact()
        with self.subTest(algorithm=algorithm, dtype=dtype):
          request = case.forward_request(pb)
          request.options.algorithm = algorithm
          response = self.forward(request)
          case.check_forward(self, pb, response)
          request = case.backward_request(pb)
          request.options.algorithm = algorithm
          case.check_backward(self, pb, self.backward(request))

  def test_infinities_stay_in_their_sequence_and_head(self):
    case = Case(q_lens=(40, 40), kv_lens=(50, 50), q_heads=4, kv_heads=2)
    clean = cases.array(pb, self.forward(case.forward_request(pb)).o)[0]
    case.problems[1].k[7, 0] = np.nan
    case.problems[1].v[9, 0] = np.inf
    got = cases.array(pb, self.forward(case.forward_request(pb)).o)[0]
    self.assertFalse(np.isfinite(got[1, :, :2]).all())
    np.testing.assert_array_equal(got[0], clean[0])
    np.testing.assert_array_equal(got[1, :, 2:], clean[1, :, 2:])

  def test_a_real_model_s_attention(self):
    folder = harness.ROOT / "tests/data/minilm"
    for layer in (0, 5):
      load = lambda name: np.load(folder / f"layer{layer}/{name}.npy")
      case = Case(q_lens=(67,), kv_lens=(67,), q_heads=12, kv_heads=12,
                  head_dim=32, value_dim=32)
      problem = case.problems[0]
      problem.q, problem.k, problem.v = (load(name)[0] for name in "qkv")
      case.d_o, case.o = [load("d_o")[0]], [load("o")[0]]
      case.exact = [cases.ORACLE.forward(problem)]
      case.lse = [load("lse")[0]]
      with self.subTest(layer=layer):
        response = self.forward(case.forward_request(pb))
        case.check_forward(self, pb, response)
        gradients = self.backward(case.backward_request(pb))
        case.check_backward(self, pb, gradients)
        for name, message in (("o", response.o), ("lse", response.lse),
                              ("dq", gradients.dq), ("dk", gradients.dk),
                              ("dv", gradients.dv)):
          got, want = cases.array(pb, message)[0], load(name)
          # The model's own error is up to 6.1e-7. P = exp(score - LSE) adds
          # the rounding of both, and in layer 0 LSE is up to 39.
          rounding = 2 * numerics.HALF_ULP["f32"] * np.abs(load("lse")).max()
          self.assertLess(np.abs(got - want).max() / np.abs(want).max(),
                          1e-6 + rounding, name)

  def test_shards_of_the_keys_merge(self):
    whole = Case(q_lens=(29,), kv_lens=(50,), causal=True, q_starts=(21,))
    p = whole.problems[0]
    outputs, logs = [], []
    for first, last in ((0, 17), (17, 40), (40, 50)):
      request = whole.forward_request(pb)
      request.k.CopyFrom(cases.tensor(pb, p.k[None, first:last]))
      request.v.CopyFrom(cases.tensor(pb, p.v[None, first:last]))
      request.attention.kv_start[:] = [first]
      response = self.forward(request)
      outputs.append(cases.array(pb, response.o)[0].astype(np.float64))
      logs.append(cases.array(pb, response.lse)[0].astype(np.float64))
    logs, outputs = np.stack(logs), np.stack(outputs)
    lse = np.logaddexp.reduce(logs, axis=0)
    weights = np.exp(logs - lse).transpose(0, 1, 3, 2)[..., None]
    merged = pb.ForwardResponse(
        o=cases.tensor(pb, (weights * outputs).sum(axis=0)),
        lse=cases.tensor(pb, lse))
    whole.check_forward(self, pb, merged)


if __name__ == "__main__":
  client.main(__doc__, cases=60, seed=1)
