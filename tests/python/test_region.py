"""Tensors in regions, from generated stubs alone: numbers, refusals, and the documented example.

    python3 tests/python/test_region.py --server=build/release/server/attnd
"""

import os
import pathlib
import sys
import tempfile
import time
import unittest

import grpc
import numpy as np

import cases
import client
import harness
import placing
from cases import Case
from client import pb
from placing import Asked
from placing import Placer
from streams import Stream

sys.path.insert(0, str(harness.ROOT / "docs" / "examples"))
import region  # needs the stubs of client  pylint: disable=wrong-import-position

MIB = 1 << 20
# Tensors of some KiB, of every layout and type.
CASES = (Case(q_lens=(70,), kv_lens=(90,), causal=True),
         Case(layout="BHSD", dtype="bf16", q_lens=(33, 33), kv_lens=(65, 65), q_heads=4),
         Case(layout="PACKED", dtype="f16", q_lens=(5, 40, 1), kv_lens=(9, 3, 70)))


def eventually(is_so):
  """Waits for what the server does behind, and tells nobody of."""
  deadline = time.monotonic() + 60
  while not is_so():
    if time.monotonic() > deadline:
      return False
    time.sleep(0.005)
  return True


class RegionTest(client.ClientTest):

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory()
    cls.path = os.path.join(cls.folder.name, "regions")
    # More than all tests together lease: what is given back is replaced slowly.
    cls.FLAGS = (f"--region_socket={cls.path}", "--region_memory=512MiB",
                 "--region_slab=2MiB")
    super().setUpClass()

  @classmethod
  def tearDownClass(cls):
    super().tearDownClass()
    cls.folder.cleanup()

  def lease(self, size=2 * MIB):
    leased = region.Region(self.path, size)
    self.addCleanup(leased.lease.close)
    return leased

  def placer(self, size=2 * MIB):
    leased = self.lease(size)
    return Placer(leased.id, leased.bytes)

  def refused(self, call, request):
    """(code, fields) of the status that a call ends with."""
    with self.assertRaises(grpc.RpcError) as refused:
      call(request)
    return refused.exception.code(), harness.violated_fields(refused.exception)

  # --- what it is for ---

  def test_the_documented_example_has_the_bits_of_an_inline_call(self):
    rng = np.random.default_rng(1)
    for shape in ((1, 300, 4, 64), (2, 5, 1, 8)):
      leased = self.lease()
      inputs = [leased.array(shape) for _ in "qkv"]
      for array in inputs:
        array[:] = rng.standard_normal(shape)
      o = region.forward(self.channel, leased, *inputs)
      q, k, v = (cases.tensor(pb, array) for array in inputs)
      expected = self.forward(pb.ForwardRequest(q=q, k=k, v=v))
      self.assertEqual(o.tobytes(), expected.o.data)

  def test_it_is_at_most_forty_five_lines(self):
    text = pathlib.Path(region.__file__).read_text()
    self.assertLessEqual(len(text.splitlines()), 45)

  def test_the_server_says_that_it_can(self):
    info = self.stub.GetServerInfo(pb.GetServerInfoRequest())
    self.assertIn("regions", info.features)
    self.assertNotIn("regions.cuda", info.features)
    self.assertEqual(info.limits.region_bytes, 32 * MIB)
    asked = Asked(self.path, placing.lease(32 * MIB))
    self.assertEqual(asked.reply.status, b"")
    self.assertEqual(asked.reply.bytes, 32 * MIB)
    self.assertEqual(asked.descriptors, 1)
    self.assertEqual(len(asked.reply.region), 16)
    self.assertEqual(asked.reply.server_instance_id, info.server_instance_id)
    asked.socket.close()

  def test_forwards_are_the_oracles(self):
    for case in CASES:
      with self.subTest(case=case):
        placer = self.placer()
        request = case.forward_request(pb)
        placer.move(request, "q", "k", "v")
        placer.place(request, "o", "lse")
        case.check_forward(self, pb, placer.fetch(self.forward(request)))

  def test_backwards_are_the_oracles(self):
    for case in CASES:
      with self.subTest(case=case):
        placer = self.placer()
        request = case.backward_request(pb)
        placer.move(request, "q", "k", "v", "d_o", "lse", "o")
        placer.place(request, "dq", "dk", "dv")
        case.check_backward(self, pb, placer.fetch(self.backward(request)))

  def test_each_tensor_may_lie_elsewhere(self):
    case = CASES[0]
    placer, other = self.placer(), self.placer()
    request = case.forward_request(pb)
    placer.move(request, "q")
    other.move(request, "v")
    other.place(request, "lse")
    response = self.forward(request)
    self.assertTrue(response.o.data)
    self.assertFalse(response.lse.data)
    case.check_forward(self, pb, other.fetch(response))

  def test_results_are_in_place_and_nothing_else_is_written(self):
    placer = self.placer()
    request = CASES[0].forward_request(pb)
    expected = self.forward(request)
    placer.move(request, "q", "k", "v")
    placer.place(request, "o", "lse")
    before = placer.memory.copy()
    placer.memory[request.o.region.offset:] = 0xee
    before[request.o.region.offset:] = 0xee
    response = self.forward(request)
    for name in ("o", "lse"):
      at, data = getattr(request, name).region.offset, getattr(expected, name).data
      result = getattr(response, name)
      self.assertEqual(result.WhichOneof("storage"), "region")
      self.assertEqual(result.region, getattr(request, name).region)
      before[at:at + len(data)] = np.frombuffer(data, np.uint8)
    np.testing.assert_array_equal(placer.memory, before)

  def test_an_exchange_streams_some_and_refers_to_others(self):
    case = Case(q_lens=(600,), kv_lens=(600,), q_heads=1, kv_heads=1, head_dim=64,
                value_dim=64)
    placer = self.placer()
    request = case.forward_request(pb)
    placer.move(request, "k", "v")
    placer.place(request, "o")
    q = request.q.data
    request.q.streamed.SetInParent()
    stream = Stream(self.channel)
    stream.send(header=pb.ExchangeHeader(forward=request))
    step = stream.receive().admitted.chunk_bytes
    for at in range(0, len(q), step):
      stream.send(chunk=pb.Chunk(tensor=1, offset=at, data=q[at:at + step]))
    stream.send(inputs_sent=pb.InputsSent())
    stream.half_close()
    messages = stream.all()
    self.assertEqual([m.WhichOneof("part") for m in messages], ["forward"])
    case.check_forward(self, pb, placer.fetch(messages[0].forward))

  # --- what is refused ---

  def test_a_region_that_there_is_not(self):
    request = CASES[0].forward_request(pb)
    for name in ("k", "o"):
      for unknown in (bytes(16), b"", b"short", bytes(range(17))):
        one = pb.ForwardRequest()
        one.CopyFrom(request)
        getattr(one, name).region.CopyFrom(pb.RegionSlice(region=unknown))
        self.assertEqual(self.refused(self.forward, one),
                         (grpc.StatusCode.NOT_FOUND, [f"{name}.region"]))

  def test_slices_that_are_not_within_the_region(self):
    placer = self.placer()
    request = CASES[0].forward_request(pb)
    placer.move(request, "q", "k", "v")
    placer.place(request, "o", "lse")
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for name in ("q", "o", "lse"):
      for offset, field in ((8, f"{name}.region.offset"),
                            (-256, f"{name}.region"),
                            (2 * MIB, f"{name}.region"),
                            (2 * MIB - 256, f"{name}.region"),
                            ((1 << 63) - 256, f"{name}.region"),
                            (-(1 << 63), f"{name}.region")):
        one = pb.ForwardRequest()
        one.CopyFrom(request)
        getattr(one, name).region.offset = offset
        self.assertEqual(self.refused(self.forward, one), (invalid, [field]),
                         (name, offset))
    self.assertTrue(self.forward(request).HasField("report"))

  def test_no_tensor_overlaps_a_result(self):
    placer = self.placer()
    request = CASES[0].forward_request(pb)
    placer.move(request, "q", "k", "v")
    placer.place(request, "o", "lse")
    for name, other in (("o", "q"), ("o", "v"), ("lse", "k"), ("lse", "o")):
      one = pb.ForwardRequest()
      one.CopyFrom(request)
      getattr(one, name).region.offset = getattr(request, other).region.offset + 256
      self.assertEqual(self.refused(self.forward, one),
                       (grpc.StatusCode.INVALID_ARGUMENT, [f"{name}.region"]))
    # Inputs may.
    request.v.region.CopyFrom(request.k.region)
    self.assertTrue(self.forward(request).HasField("report"))

  def test_what_the_region_socket_does_not_understand(self):
    for packet, code in ((b"\xff", "INVALID_ARGUMENT"),
                         (placing.lease(0), "INVALID_ARGUMENT"),
                         (placing.lease(-1), "INVALID_ARGUMENT"),
                         (placing.lease(32 * MIB + 1), "INVALID_ARGUMENT"),
                         (placing.lease(1) + bytes(2000), "INVALID_ARGUMENT"),
                         (b"\x7a\x00", "UNIMPLEMENTED")):
      asked = Asked(self.path, packet)
      self.assertEqual(asked.code, code, packet[:20])
      self.assertEqual(asked.descriptors, 0)
      self.assertTrue(asked.has_ended())
    with open(os.devnull, "rb") as file:
      asked = Asked(self.path, placing.lease(1), [file.fileno()])
    self.assertEqual(asked.code, "INVALID_ARGUMENT")
    self.assertTrue(asked.has_ended())
    self.lease()  # nothing of it harms the next

  # --- the end of a lease ---

  def await_end(self, request):
    """Waits until the region of `request`, whose lease is over, is not found."""
    def is_over():
      try:
        self.forward(request)
        return False
      except grpc.RpcError as error:
        self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(harness.violated_fields(error), ["q.region"])
        return True
    self.assertTrue(eventually(is_over))

  def test_a_lease_ends_with_its_connection(self):
    leased = self.lease()
    placer = Placer(leased.id, leased.bytes)
    request = CASES[0].forward_request(pb)
    placer.move(request, "q", "k", "v")
    self.assertTrue(self.forward(request).HasField("report"))
    leased.lease.close()
    self.await_end(request)

  def test_a_second_packet_ends_the_lease(self):
    leased = self.lease()
    placer = Placer(leased.id, leased.bytes)
    request = CASES[0].forward_request(pb)
    placer.move(request, "q")
    leased.lease.send(placing.lease(1))
    self.await_end(request)

  def test_an_old_mapping_reads_zeros_and_reaches_nobody(self):
    old = self.lease(32 * MIB)
    old.bytes[:] = 0x5a
    old.lease.close()
    self.assertTrue(eventually(lambda: not old.bytes.any()))
    new = self.lease(32 * MIB)
    self.assertNotEqual(new.id, old.id)
    self.assertFalse(new.bytes.any())
    old.bytes[:] = 0x77
    self.assertFalse(new.bytes.any())
    new.bytes[:] = 0x33
    # The server may make it zeros once more, when it lets go of the memory.
    self.assertTrue(((old.bytes == 0x77) | (old.bytes == 0)).all())


class WithoutRegionsTest(client.ClientTest):
  """A server that shares no memory; its clients cannot know before they ask."""

  def test_it_says_so(self):
    info = self.stub.GetServerInfo(pb.GetServerInfoRequest())
    self.assertFalse([f for f in info.features if f.startswith("regions")])
    self.assertEqual(info.limits.region_bytes, 0)
    request = CASES[0].forward_request(pb)
    request.q.region.CopyFrom(pb.RegionSlice(region=bytes(16)))
    with self.assertRaises(grpc.RpcError) as refused:
      self.forward(request)
    self.assertEqual(refused.exception.code(), grpc.StatusCode.NOT_FOUND)
    self.assertEqual(harness.violated_fields(refused.exception), ["q.region"])


if __name__ == "__main__":
  client.main(__doc__)
