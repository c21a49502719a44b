#!/usr/bin/env python3
"""Requests that make no sense: each is refused by its field.

    python3 tests/python/test_refusals.py --server=build/release/server/attnd
"""

import dataclasses

import grpc
import numpy as np
from grpc_status import rpc_status

import cases
import client
import harness
from cases import Case
from client import pb


class BadRequestTest(client.ClientTest):
  """Each gets its code and its field, and the next request is served."""

  def setUp(self):
    self.case = Case(q_lens=(4, 3), kv_lens=(6, 5), q_heads=4, kv_heads=2)

  def tearDown(self):
    self.forward(Case().forward_request(pb))

  def refusal(self, method, request):
    with self.assertRaises(grpc.RpcError) as caught:
      getattr(self.stub, method)(request, timeout=60)
    return caught.exception

  def assert_names(self, error, field):
    """INVALID_ARGUMENT with a BadRequest detail that names the field."""
    self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT,
                     error.details())
    status = rpc_status.from_call(error)
    self.assertIsNotNone(status, f"no details with: {error.details()}")
    self.assertEqual(status.message, error.details())
    self.assertIn(field, harness.violated_fields(error), error.details())

  def check(self, change, field, method="Forward"):
    request = (self.case.forward_request(pb) if method == "Forward"
               else self.case.backward_request(pb))
    change(request)
    self.assert_names(self.refusal(method, request), field)

  def test_a_shape_that_does_not_fit(self):
    zeros = lambda *shape: cases.tensor(pb, np.zeros(shape))
    replace = {
        "rank of q": ("q", zeros(2, 4, 32), "q.shape"),
        "rank of k": ("k", zeros(2, 6, 2, 8, 1), "k.shape"),
        "batch of k": ("k", zeros(1, 6, 2, 8), "k.shape"),
        "length of v": ("v", zeros(2, 7, 2, 8), "v.shape"),
        "heads of v": ("v", zeros(2, 6, 1, 8), "v.shape"),
        "head_dim of k": ("k", zeros(2, 6, 2, 9), "k.shape"),
        "columns of bias": ("bias", zeros(2, 4, 4, 5), "bias.shape"),
        "batch of bias": ("bias", zeros(3, 4, 4, 6), "bias.shape"),
    }
    for name, (field, value, violated) in replace.items():
      with self.subTest(name):
        self.check(lambda r: getattr(r, field).CopyFrom(value), violated)

  def test_heads_that_do_not_divide(self):
    def change(r):
      for name in ("k", "v"):
        getattr(r, name).CopyFrom(cases.tensor(pb, np.zeros((2, 6, 3, 8))))
    self.check(change, "k.shape")

  def test_sizes_out_of_range(self):
    def shape(*dims, data=b""):
      def change(r):
        r.q.shape[:] = dims
        r.q.data = data
      return change
    for name, change in {
        "negative": shape(2, -4, 4, 8),
        "overflowing": shape(2 ** 40, 2 ** 40, 4, 8),
        "huge beside zero": shape(2, 0, 2 ** 62, 8),
        "head_dim of 0": shape(2, 4, 4, 0),
        "head_dim over 256": shape(2, 4, 4, 257,
                                   data=bytes(4 * 2 * 4 * 4 * 257)),
    }.items():
      with self.subTest(name):
        self.check(change, "q.shape")

  def test_bytes_that_do_not_match_the_shape(self):
    for size in (0, 1, 2 * 4 * 4 * 8 * 4 - 1, 2 * 4 * 4 * 8 * 4 + 1):
      with self.subTest(size=size):
        def change(r):
          r.q.data = bytes(size)
        self.check(change, "q.data")

  def test_tensors_that_are_missing(self):
    for name in ("q", "k", "v"):
      with self.subTest(name):
        self.check(lambda r: r.ClearField(name), name)
    for name in ("d_o", "lse", "o"):
      with self.subTest(name):
        self.check(lambda r: r.ClearField(name), name, "Backward")
    with self.subTest("data"):
      self.check(lambda r: r.k.ClearField("data"), "k.data")

  def test_types(self):
    def dtype(name, value):
      def change(r):
        getattr(r, name).dtype = value
      return change
    self.check(dtype("q", 0), "q.dtype")
    self.check(dtype("q", 99), "q.dtype")
    self.check(dtype("k", pb.DATA_TYPE_BF16), "k.dtype")
    self.check(dtype("o", pb.DATA_TYPE_F16), "o.dtype")
    self.check(dtype("lse", pb.DATA_TYPE_F16), "lse.dtype")
    self.check(dtype("lse", pb.DATA_TYPE_F16), "lse.dtype", "Backward")

  def test_enumerations(self):
    def layout(r):
      r.attention.layout = 77
    def algorithm(r):
      r.options.algorithm = 77
    def plan(value):
      def change(r):
        r.options.plan = value
      return change
    def priority(r):
      r.options.priority = -5
    self.check(layout, "attention.layout")
    self.check(algorithm, "options.algorithm")
    for value in (-1, 9, 77):
      self.check(plan(value), "options.plan")
    self.check(priority, "options.priority")

  def test_a_plan_for_a_team_where_there_is_none(self):
    info = self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
    self.assertNotIn("plans", info.features)
    for value in (pb.PLAN_HEADS, pb.PLAN_GATHER, pb.PLAN_RING, pb.PLAN_STRIPED,
                  pb.PLAN_ZIGZAG, pb.PLAN_KV):
      for method in ("Forward", "Backward"):
        def change(r):
          r.options.plan = value
        self.check(change, "options.plan", method)

  def test_lengths(self):
    def lens(name, values):
      def change(r):
        getattr(r.attention, name)[:] = values
      return change
    self.check(lens("q_lens", [5, 3]), "attention.q_lens")
    self.check(lens("q_lens", [4, -1]), "attention.q_lens")
    self.check(lens("q_lens", [4]), "attention.q_lens")
    self.check(lens("kv_lens", [6, 7]), "attention.kv_lens")
    self.check(lens("kv_lens", [6, 5, 4]), "attention.kv_lens")

  def test_packed_lengths_must_sum_to_the_tokens(self):
    self.case = dataclasses.replace(self.case, layout="PACKED")
    def change(r):
      r.attention.q_lens[:] = [4, 4]
    self.check(change, "attention.q_lens")
    self.check(lambda r: r.attention.ClearField("kv_lens"),
               "attention.kv_lens")

  def test_positions_and_strides(self):
    def positions(name, value):
      def change(r):
        if name.endswith("start"):
          getattr(r.attention, name)[:] = value
        else:
          setattr(r.attention, name, value)
      return change
    self.check(positions("q_start", [2 ** 62]), "attention.q_start")
    self.check(positions("kv_start", [0, -2 ** 63]), "attention.kv_start")
    self.check(positions("q_start", [1, 2, 3]), "attention.q_start")
    self.check(positions("q_stride", 0), "attention.q_stride")
    self.check(positions("kv_stride", -1), "attention.kv_stride")
    self.check(positions("q_stride", 2 ** 61), "attention.q_stride")

  def test_windows(self):
    def left(r):
      r.attention.mask.window_left = -2
    def right(r):
      r.attention.mask.window_right = -9
    self.check(left, "attention.mask.window_left")
    self.check(right, "attention.mask.window_right")

  def test_scale_and_softcap(self):
    for value in (np.inf, -np.inf, np.nan):
      def scale(r):
        r.attention.scale = value
      def softcap(r):
        r.attention.softcap = value
      with self.subTest(value=value):
        self.check(scale, "attention.scale")
        self.check(softcap, "attention.softcap")
    for value in (0.0, -1.0):
      def softcap(r):
        r.attention.softcap = value
      with self.subTest(value=value):
        self.check(softcap, "attention.softcap")


if __name__ == "__main__":
  client.main(__doc__)
