#!/usr/bin/env python3
"""Bytes that no generated stub would send.

    python3 tests/python/test_raw_bytes.py --server=build/release/server/attnd
"""

import grpc
import numpy as np

import client
import harness
import wire
from cases import Case
from client import pb


class RawBytesTest(client.ClientTest):

  def setUp(self):
    self.request = Case().forward_request(pb)
    self.bytes = self.request.SerializeToString()

  def tearDown(self):
    self.forward(Case().forward_request(pb))

  def refusal(self, data, method="Forward", **options):
    with self.assertRaises(grpc.RpcError) as caught:
      harness.raw_call(self.channel, method, data, **options)
    return caught.exception

  def test_a_hint_of_its_length_is_taken(self):
    want = self.forward(self.request)
    for hint in len(self.bytes), len(self.bytes) + 1000:
      got = pb.ForwardResponse.FromString(harness.raw_call(
          self.channel, "Forward", self.bytes,
          metadata=[("attnd-request-bytes", str(hint))]))
      self.assertEqual(got.o, want.o)

  def test_a_hint_that_is_no_length_is_refused_by_its_name(self):
    for hint in "", "-1", "1k", str(1 << 64):
      error = self.refusal(self.bytes,
                           metadata=[("attnd-request-bytes", hint)])
      self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
      self.assertEqual(harness.violated_fields(error),
                       ["attnd-request-bytes"])

  def test_a_hint_too_low_is_refused_and_the_next_call_served(self):
    error = self.refusal(self.bytes, metadata=[
        ("attnd-request-bytes", str(len(self.bytes) - 1))])
    self.assertEqual(error.code(), grpc.StatusCode.INVALID_ARGUMENT)
    self.assertEqual(harness.violated_fields(error), ["attnd-request-bytes"])
    harness.raw_call(self.channel, "Forward", self.bytes, metadata=[
        ("attnd-request-bytes", str(len(self.bytes) - 1))])

  def test_a_hint_beyond_any_message_is_refused_for_good(self):
    error = self.refusal(self.bytes,
                         metadata=[("attnd-request-bytes", str(1 << 62))])
    self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
    self.assertEqual(harness.violated_fields(error), [])

  def test_any_field_order_is_accepted(self):
    fields = [wire.field(number, message.SerializeToString())
              for number, message in ((1, self.request.q), (2, self.request.k),
                                      (3, self.request.v),
                                      (5, self.request.attention))]
    want = self.forward(self.request)
    rng = np.random.default_rng(1)
    for _ in range(6):
      data = b"".join(fields[i] for i in rng.permutation(len(fields)))
      got = pb.ForwardResponse.FromString(
          harness.raw_call(self.channel, "Forward", data))
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
        harness.raw_call(self.channel, "Forward", data))
    self.assertEqual(got.o, self.forward(self.request).o)

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
        harness.raw_call(self.channel, "Forward", bytes(data))
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


if __name__ == "__main__":
  client.main(__doc__)
