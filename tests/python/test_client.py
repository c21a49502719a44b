#!/usr/bin/env python3
"""attnd as a client in another language sees it, against numpy in float64.

    python3 tests/python/test_client.py --server=build/release/server/attnd

Knows nothing of attnd but its .proto and its command line: stubs are generated
from the one, a server is started with the other.
"""

import argparse
import dataclasses
import sys
import tempfile
import unittest

import grpc
import numpy as np
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)
from grpc_status import rpc_status

import cases
import harness
import numerics
import wire
from cases import Case

OPTIONS = argparse.Namespace(server=None, cases=60, seed=1)
SERVICE = "attn.v1.AttentionService"


def setUpModule():
  global pb, stub, channel, server, stub_folder, pb_grpc
  stub_folder = tempfile.TemporaryDirectory()
  pb, pb_grpc = harness.generate_stubs(stub_folder.name)
  server = harness.Server(OPTIONS.server)
  channel = server.channel()
  stub = pb_grpc.AttentionServiceStub(channel)


def tearDownModule():
  channel.close()
  status, log = server.stop()
  stub_folder.cleanup()
  # Also where a sanitizer reports what it found while the tests ran.
  if status != 0:
    raise AssertionError(f"attnd exited {status}:\n{log}")


def forward(request):
  return stub.Forward(request, timeout=60)


def backward(request):
  return stub.Backward(request, timeout=60)


class NumericTest(unittest.TestCase):

  def check(self, case):
    case.check_forward(self, pb, forward(case.forward_request(pb)))
    for with_delta in (False, True):
      request = case.backward_request(pb, with_delta, with_d_lse=with_delta)
      case.check_backward(self, pb, backward(request), with_delta,
                          with_d_lse=with_delta)

  def test_random_requests_are_the_oracle_s_within_limits(self):
    rng = np.random.default_rng(OPTIONS.seed)
    for _ in range(OPTIONS.cases):
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
    response = forward(case.forward_request(pb))
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
          response = forward(request)
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
          response = forward(request)
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
          response = forward(request)
          case.check_forward(self, pb, response)
          request = case.backward_request(pb)
          request.options.algorithm = algorithm
          case.check_backward(self, pb, backward(request))

  def test_infinities_stay_in_their_sequence_and_head(self):
    case = Case(q_lens=(40, 40), kv_lens=(50, 50), q_heads=4, kv_heads=2)
    clean = cases.array(pb, forward(case.forward_request(pb)).o)[0]
    case.problems[1].k[7, 0] = np.nan
    case.problems[1].v[9, 0] = np.inf
    got = cases.array(pb, forward(case.forward_request(pb)).o)[0]
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
        response = forward(case.forward_request(pb))
        case.check_forward(self, pb, response)
        gradients = backward(case.backward_request(pb))
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
      response = forward(request)
      outputs.append(cases.array(pb, response.o)[0].astype(np.float64))
      logs.append(cases.array(pb, response.lse)[0].astype(np.float64))
    logs, outputs = np.stack(logs), np.stack(outputs)
    lse = np.logaddexp.reduce(logs, axis=0)
    weights = np.exp(logs - lse).transpose(0, 1, 3, 2)[..., None]
    merged = pb.ForwardResponse(
        o=cases.tensor(pb, (weights * outputs).sum(axis=0)),
        lse=cases.tensor(pb, lse))
    whole.check_forward(self, pb, merged)


class OptionsTest(unittest.TestCase):

  def test_only_what_is_wanted_comes_back(self):
    case = Case()
    request = case.forward_request(pb)
    request.lse.want = False
    response = forward(request)
    self.assertTrue(response.HasField("o"))
    self.assertFalse(response.HasField("lse"))
    request = case.backward_request(pb)
    request.dk.want = False
    request.dv.want = False
    response = backward(request)
    self.assertTrue(response.HasField("dq"))
    self.assertFalse(response.HasField("dk"))
    self.assertFalse(response.HasField("dv"))

  def test_gradients_come_as_f32_when_asked(self):
    request = Case(dtype="bf16").backward_request(pb)
    request.dk.dtype = pb.DATA_TYPE_F32
    response = backward(request)
    self.assertEqual(response.dq.dtype, pb.DATA_TYPE_BF16)
    self.assertEqual(response.dk.dtype, pb.DATA_TYPE_F32)

  def test_priority_and_deterministic_change_no_bit(self):
    case = Case(q_lens=(70,), kv_lens=(130,), q_heads=4)
    plain = forward(case.forward_request(pb))
    for priority in pb.Priority.values():
      request = case.forward_request(pb)
      request.options.priority = priority
      request.options.deterministic = True
      response = forward(request)
      self.assertEqual(response.o, plain.o)
      self.assertEqual(response.lse, plain.lse)

  def test_what_runs_beside_a_request_changes_no_bit(self):
    rng = np.random.default_rng(7)
    alone = []
    for _ in range(12):
      request = cases.random_case(rng).forward_request(pb)
      alone.append((request, forward(request)))
    calls = [(stub.Forward.future(request, timeout=60), want)
             for _ in range(6) for request, want in alone]
    for call, want in calls:
      got = call.result()
      self.assertEqual(got.o, want.o)
      self.assertEqual(got.lse, want.lse)

  def test_the_report_says_how_it_ran(self):
    case = Case(q_lens=(64,), kv_lens=(96,), q_heads=4, kv_heads=2,
                head_dim=32, value_dim=16)
    for response, multiple in ((forward(case.forward_request(pb)), 1.0),
                               (backward(case.backward_request(pb)), 2.5)):
      report = response.report
      self.assertTrue(report.device)
      self.assertTrue(report.kernel)
      self.assertNotEqual(report.algorithm, pb.ALGORITHM_UNSPECIFIED)
      self.assertEqual(report.batch_requests, 1)
      # Two per multiply-add, over every pair and head, of both products.
      self.assertEqual(report.flops, multiple * 2 * 64 * 96 * 4 * (32 + 16))
      self.assertGreater(report.phases.compute_ns, 0)
      for phase in ("queue_ns", "upload_ns", "download_ns"):
        self.assertGreaterEqual(getattr(report.phases, phase), 0)
        self.assertLess(getattr(report.phases, phase), 60e9)


class BadRequestTest(unittest.TestCase):
  """Each is refused with its code and field, and the next request served."""

  def setUp(self):
    self.case = Case(q_lens=(4, 3), kv_lens=(6, 5), q_heads=4, kv_heads=2)

  def tearDown(self):
    forward(Case().forward_request(pb))

  def refusal(self, call, request):
    with self.assertRaises(grpc.RpcError) as caught:
      call(request)
    return caught.exception

  def assert_names(self, error, field):
    """INVALID_ARGUMENT with a BadRequest detail that names the field."""
    self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT,
                     error.details())
    status = rpc_status.from_call(error)
    self.assertIsNotNone(status, f"no details with: {error.details()}")
    self.assertEqual(status.message, error.details())
    self.assertIn(field, harness.violated_fields(error), error.details())

  def check(self, change, field, call=forward):
    request = (self.case.forward_request(pb) if call is forward
               else self.case.backward_request(pb))
    change(request)
    self.assert_names(self.refusal(call, request), field)

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
        self.check(lambda r: r.ClearField(name), name, backward)
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
    self.check(dtype("lse", pb.DATA_TYPE_F16), "lse.dtype", backward)

  def test_enumerations(self):
    def layout(r):
      r.attention.layout = 77
    def algorithm(r):
      r.options.algorithm = 77
    def priority(r):
      r.options.priority = -5
    self.check(layout, "attention.layout")
    self.check(algorithm, "options.algorithm")
    self.check(priority, "options.priority")

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


class RawBytesTest(unittest.TestCase):
  """What no generated stub would send."""

  def setUp(self):
    self.request = Case().forward_request(pb)
    self.bytes = self.request.SerializeToString()

  def tearDown(self):
    forward(Case().forward_request(pb))

  def refusal(self, data, method="Forward", **options):
    with self.assertRaises(grpc.RpcError) as caught:
      harness.raw_call(channel, method, data, **options)
    return caught.exception

  def test_any_field_order_is_accepted(self):
    fields = [wire.field(number, message.SerializeToString())
              for number, message in ((1, self.request.q), (2, self.request.k),
                                      (3, self.request.v),
                                      (5, self.request.attention))]
    want = forward(self.request)
    rng = np.random.default_rng(1)
    for _ in range(6):
      data = b"".join(fields[i] for i in rng.permutation(len(fields)))
      got = pb.ForwardResponse.FromString(
          harness.raw_call(channel, "Forward", data))
      self.assertEqual(got.o, want.o)

  def test_data_before_dtype_and_shape_is_accepted(self):
    q = self.request.q
    shape = b"".join(wire.varint(n) for n in q.shape)
    tensor = (wire.field(15, q.data) + wire.field(2, shape)
              + wire.integer(1, q.dtype))
    rest = pb.ForwardRequest.FromString(self.bytes)
    rest.ClearField("q")
    data = rest.SerializeToString() + wire.field(1, tensor)
    got = pb.ForwardResponse.FromString(
        harness.raw_call(channel, "Forward", data))
    self.assertEqual(got.o, forward(self.request).o)

  def test_an_unknown_field_is_unimplemented_by_its_number(self):
    unknown = wire.field(1234, b"x")
    for name, data in {
        "top": self.bytes + unknown,
        "varint": self.bytes + wire.integer(1234, 1),
        "in a tensor": self.bytes + wire.field(
            4, pb.Tensor(dtype=1).SerializeToString() + unknown),
        "in the mask": self.bytes.replace(
            wire.field(5, self.request.attention.SerializeToString()), b"")
            + wire.field(5, wire.field(4, unknown)),
        "in options": self.bytes + wire.field(8, unknown),
    }.items():
      with self.subTest(name):
        error = self.refusal(data)
        self.assertEqual(error.code(), grpc.StatusCode.UNIMPLEMENTED,
                         error.details())
        self.assertRegex(error.details(), r"\b1234\b")
    error = self.refusal(unknown, "GetServerInfo")
    self.assertEqual(error.code(), grpc.StatusCode.UNIMPLEMENTED)
    self.assertRegex(error.details(), r"\b1234\b")

  def test_a_repeated_singular_field_is_refused(self):
    q = wire.field(1, self.request.q.SerializeToString())
    for name, data, named in (
        ("tensor", self.bytes + q, r"\bq\b"),
        ("scalar", self.bytes + wire.field(8, b"\x08\x01\x08\x01"),
         r"algorithm")):
      with self.subTest(name):
        error = self.refusal(data)
        self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertRegex(error.details(), named)

  def test_truncated_and_garbled_messages_are_refused(self):
    rng = np.random.default_rng(5)
    for size in (1, 2, 3, 10, len(self.bytes) // 2, len(self.bytes) - 1):
      with self.subTest(size=size):
        self.assertEqual(self.refusal(self.bytes[:size]).code(),
                         grpc.StatusCode.INVALID_ARGUMENT)
    allowed = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
    for _ in range(200):
      data = bytearray(self.bytes)
      for at in rng.integers(0, len(data), 3):
        data[at] = rng.integers(256)
      try:
        harness.raw_call(channel, "Forward", bytes(data))
      except grpc.RpcError as error:  # or it still was a request
        self.assertIn(error.code(), allowed, error.details())

  def test_an_empty_message_is_refused(self):
    self.assertEqual(self.refusal(b"").code(),
                     grpc.StatusCode.INVALID_ARGUMENT)
    self.assertEqual(self.refusal(b"", "Backward").code(),
                     grpc.StatusCode.INVALID_ARGUMENT)

  def test_compressed_requests_are_unimplemented(self):
    case = Case(q_lens=(64,), kv_lens=(64,), size=0.0)
    error = self.refusal(case.forward_request(pb).SerializeToString(),
                         compression=grpc.Compression.Gzip)
    self.assertEqual(error.code(), grpc.StatusCode.UNIMPLEMENTED)

  def test_a_method_that_is_not_there(self):
    self.assertEqual(self.refusal(b"", "Sideways").code(),
                     grpc.StatusCode.UNIMPLEMENTED)


class ServiceTest(unittest.TestCase):

  def test_server_info(self):
    info = stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
    self.assertRegex(info.server_instance_id, r"^[0-9a-f]{32}$")
    self.assertTrue(info.version)
    self.assertEqual(info.limits.max_head_dim, 256)
    for name in ("max_message_bytes", "memory_limit_bytes",
                 "max_queue_requests", "max_queue_flops", "max_request_flops"):
      self.assertGreater(getattr(info.limits, name), 0, name)
    self.assertTrue(info.devices)
    for device in info.devices:
      self.assertIn(device.kind, ("cpu", "cuda"))
      self.assertTrue(device.name)
      self.assertTrue(device.in_service)
      self.assertGreater(device.memory_bytes, 0)

  def test_another_server_is_another_instance(self):
    other = harness.Server(OPTIONS.server)
    with other.channel() as other_channel:
      other_stub = pb_grpc.AttentionServiceStub(other_channel)
      ids = [s.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
             .server_instance_id for s in (stub, other_stub, other_stub)]
    status, log = other.stop()
    self.assertEqual(status, 0, log)
    self.assertNotEqual(ids[0], ids[1])
    self.assertEqual(ids[1], ids[2])

  def test_the_same_answer_over_a_unix_socket(self):
    request = Case().forward_request(pb)
    with tempfile.TemporaryDirectory() as folder:
      socket = f"{folder}/attnd.sock"
      other = harness.Server(OPTIONS.server, f"--unix_socket={socket}")
      answers = []
      for address in (other.address, f"unix:{socket}"):
        with other.channel(address) as other_channel:
          other_stub = pb_grpc.AttentionServiceStub(other_channel)
          answers.append(other_stub.Forward(request, timeout=60))
      status, log = other.stop()
    self.assertEqual(status, 0, log)
    self.assertEqual(answers[0].o, answers[1].o)

  def test_health(self):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", SERVICE):
      with self.subTest(service):
        response = health.Check(health_pb2.HealthCheckRequest(service=service),
                                timeout=60)
        self.assertEqual(response.status,
                         health_pb2.HealthCheckResponse.SERVING)
    with self.assertRaises(grpc.RpcError) as caught:
      health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=60)
    self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

  def test_reflection_gives_the_proto(self):
    database = ProtoReflectionDescriptorDatabase(channel)
    self.assertIn(SERVICE, database.get_services())
    self.assertIn("grpc.health.v1.Health", database.get_services())
    found = database.FindFileContainingSymbol(SERVICE)
    self.assertEqual(found.package, "attn.v1")
    methods = {m.name for m in found.service[0].method}
    self.assertEqual(methods, {"Forward", "Backward", "GetServerInfo"})

  def test_an_expired_deadline_and_a_cancelled_call(self):
    # Hundreds of GFLOP: no server is done with it in 10 ms.
    zeros = cases.tensor(pb, np.zeros((1, 16384, 4, 64)), "f16")
    request = pb.ForwardRequest(q=zeros, k=zeros, v=zeros)
    with self.assertRaises(grpc.RpcError) as caught:
      stub.Forward(request, timeout=0.01)
    self.assertEqual(caught.exception.code(),
                     grpc.StatusCode.DEADLINE_EXCEEDED)
    for _ in range(5):
      stub.Forward.future(request, timeout=60).cancel()
    forward(Case().forward_request(pb))


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.
                                   RawDescriptionHelpFormatter)
  parser.add_argument("--server", required=True, help="path of attnd")
  parser.add_argument("--cases", type=int, default=OPTIONS.cases,
                      help="random requests to check (default %(default)s)")
  parser.add_argument("--seed", type=int, default=OPTIONS.seed)
  _, rest = parser.parse_known_args(namespace=OPTIONS)
  unittest.main(argv=sys.argv[:1] + rest)
