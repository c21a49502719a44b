"""Exchanges from generated stubs alone: the documented example, and what is refused.
"""

import pathlib
import signal
import sys
import threading
import unittest

import grpc
import numpy as np

import client
import harness
from client import pb, pb_grpc
from slow_proxy import SlowProxy
from streams import Stream

sys.path.insert(0, str(harness.ROOT / "docs" / "examples"))
import exchange  # needs the stubs of client  pylint: disable=wrong-import-position

CHUNK = 64 << 10


def random_request(shape, seed=1):
  """A ForwardRequest without data, and its tensors' bytes by name."""
  rng = np.random.default_rng(seed)
  request = pb.ForwardRequest()
  request.attention.mask.causal = True
  inputs = {}
  for name in "qkv":
    tensor = getattr(request, name)
    tensor.dtype = pb.DATA_TYPE_F32
    tensor.shape.extend(shape)
    inputs[name] = rng.standard_normal(shape, dtype=np.float32).tobytes()
  return request, inputs


def whole(request, inputs):
  """The same request with its data inside."""
  unary = pb.ForwardRequest()
  unary.CopyFrom(request)
  for name, data in inputs.items():
    getattr(unary, name).data = data
  return unary


def header(request, streams=1):
  streamed = pb.ForwardRequest()
  streamed.CopyFrom(request)
  for name in "qkv":
    getattr(streamed, name).streamed.SetInParent()
  streamed.o.streamed.SetInParent()
  return pb.ExchangeHeader(forward=streamed, streams=streams, chunk_bytes=CHUNK)


def chunks(inputs):
  for number, name in enumerate("qkv", 1):
    for at in range(0, len(inputs[name]), CHUNK):
      yield pb.Chunk(tensor=number, offset=at, data=inputs[name][at:at + CHUNK])


class ExchangeTest(client.ClientTest):

  def test_the_documented_example_has_the_bits_of_a_unary_call(self):
    for shape in ((1, 1000, 8, 64), (1, 4, 1, 8), (2, 600, 4, 128), (1, 0, 2, 8)):
      request, inputs = random_request(shape)
      expected = self.forward(whole(request, inputs))
      response, results = exchange.forward(self.channel, request, inputs)
      self.assertEqual(bytes(results["o"]), expected.o.data)
      self.assertEqual(bytes(results["lse"]), expected.lse.data)
      self.assertEqual(response.report.kernel, expected.report.kernel)

  def test_it_is_at_most_forty_lines(self):
    text = pathlib.Path(exchange.__file__).read_text()
    self.assertLessEqual(len(text.splitlines()), 40)

  def test_the_server_says_that_it_can(self):
    info = self.stub.GetServerInfo(pb.GetServerInfoRequest())
    self.assertIn("exchange", info.features)
    self.assertGreaterEqual(info.limits.max_transfer_streams, 2)

  def test_chunks_travel_over_streams_that_join(self):
    request, inputs = random_request((1, 2000, 4, 64))
    main = Stream(self.channel)
    main.send(header=header(request, streams=3))
    admitted = main.receive().admitted
    self.assertEqual(admitted.streams, 3)
    joined = []
    for _ in range(2):
      stream = Stream(self.server.channel())
      stream.send(join=pb.Join(transfer=admitted.transfer))
      joined.append(stream)
    for i, chunk in enumerate(chunks(inputs)):
      [main, *joined][i % 3].send(chunk=chunk)
    for stream in joined:
      stream.half_close()
    main.send(inputs_sent=pb.InputsSent(streams=2))
    results = [[], []]
    threads = [threading.Thread(target=lambda s=s, r=r: r.extend(s.all()))
               for s, r in zip(joined, results)]
    for thread in threads:
      thread.start()
    o = bytearray(len(inputs["q"]))
    def put(message):
      o[message.chunk.offset:message.chunk.offset + len(message.chunk.data)] = (
          message.chunk.data)
    while True:
      message = main.receive()
      if message.HasField("forward"):
        break
      put(message)
    for thread in threads:
      thread.join()
    for message in results[0] + results[1]:
      put(message)
    main.half_close()
    self.assertEqual(main.code(), grpc.StatusCode.OK)
    self.assertEqual(bytes(o), self.forward(whole(request, inputs)).o.data)

  def test_what_did_not_arrive_is_asked_for(self):
    request, inputs = random_request((1, 1000, 1, 64))
    main = Stream(self.channel)
    main.send(header=header(request))
    main.receive()
    sent = list(chunks(inputs))
    for chunk in sent[2:]:
      main.send(chunk=chunk)
    main.send(inputs_sent=pb.InputsSent())
    missing = main.receive().missing
    self.assertEqual([(r.tensor, r.offset, r.bytes) for r in missing.ranges],
                     [(1, 0, 2 * CHUNK)])
    for chunk in sent[:2]:
      main.send(chunk=chunk)
    o = bytearray()
    while True:
      message = main.receive()
      if message.HasField("forward"):
        break
      o += message.chunk.data
    main.half_close()
    self.assertEqual(main.code(), grpc.StatusCode.OK)
    self.assertEqual(bytes(o), self.forward(whole(request, inputs)).o.data)

  def test_refusals_have_their_codes(self):
    request, inputs = random_request((1, 1000, 1, 64))
    first = next(chunks(inputs))
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for part in ({"chunk": pb.Chunk(tensor=1, offset=1, data=first.data)},
                 {"chunk": pb.Chunk(tensor=1, offset=0, data=b"x")},
                 {"chunk": pb.Chunk(tensor=9, offset=0, data=first.data)},
                 {"missing": pb.Missing()}, {"header": header(request)}, {}):
      stream = Stream(self.channel)
      stream.send(header=header(request))
      stream.receive()
      stream.send(**part)
      self.assertEqual(stream.code(), invalid, part)
    stream = Stream(self.channel)
    stream.send(chunk=first)
    self.assertEqual(stream.code(), invalid)
    stream = Stream(self.channel)
    stream.send(join=pb.Join(transfer=bytes(16)))
    self.assertEqual(stream.code(), grpc.StatusCode.NOT_FOUND)
    stream = Stream(self.channel)
    stream.half_close()
    self.assertEqual(stream.code(), invalid)
    # Nothing of it harms the next.
    response, _ = exchange.forward(self.channel, request, inputs)
    self.assertTrue(response.HasField("report"))

  def test_streamed_tensors_belong_in_an_exchange(self):
    request, _ = random_request((1, 4, 1, 8))
    for name in "qkv":
      getattr(request, name).streamed.SetInParent()
    with self.assertRaises(grpc.RpcError) as refused:
      self.forward(request)
    self.assertEqual(refused.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
    self.assertIn("q.streamed", refused.exception.details())


class LifetimeTest(unittest.TestCase):
  """Servers of their own, which end or age under a transfer."""

  def start(self, *flags):
    server = harness.Server(client.OPTIONS.server, *flags)
    self.addCleanup(server.kill)
    return server

  def open(self, server, address=None):
    channel = server.channel(address)
    self.addCleanup(channel.close)
    stream = Stream(channel)
    # Its thread would wait for what is still to be sent.
    self.addCleanup(stream.half_close)
    return channel, stream

  def ends_well(self, server):
    """After a drain: another signal, which stop() sends, would end that."""
    server.process.wait(server.STOP_SECONDS)
    status, log = server.stop()
    self.assertEqual(status, 0, log)

  def transfer_that_outlasts(self, server, event, address=None):
    request, inputs = random_request((1, 1000, 4, 64))
    channel, stream = self.open(server, address)
    stream.send(header=header(request))
    stream.receive()
    sent = list(chunks(inputs))
    for chunk in sent[:3]:
      stream.send(chunk=chunk)
    event(channel)
    for chunk in sent[3:]:
      stream.send(chunk=chunk)
    stream.send(inputs_sent=pb.InputsSent())
    stream.half_close()
    kinds = [message.WhichOneof("part") for message in stream.all()]
    self.assertEqual(kinds[-1], "forward")
    self.assertEqual(stream.code(), grpc.StatusCode.OK)

  def slow_way_to(self, server):
    proxy = SlowProxy(server.address)
    self.addCleanup(proxy.close)
    return proxy.address

  def drain(self, server):
    def event(channel):
      server.process.send_signal(signal.SIGTERM)
      # It drains once it refuses calls.
      request, inputs = random_request((1, 4, 1, 8))
      stub = pb_grpc.AttentionServiceStub(channel)
      while True:
        try:
          stub.Forward(whole(request, inputs), timeout=60)
        except grpc.RpcError as error:
          self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
          return
    return event

  def age(self, channel):
    # A connection of the same age is gone once this one is as good as.
    gone = threading.Event()
    channel.subscribe(lambda state: state == grpc.ChannelConnectivity.IDLE
                      and gone.set())
    self.assertTrue(gone.wait(60))

  def test_a_drain_lets_a_transfer_finish(self):
    server = self.start("--drain_time=60s")
    self.transfer_that_outlasts(server, self.drain(server))
    self.ends_well(server)

  def test_a_drain_waits_for_who_reads_slowly(self):
    server = self.start("--drain_time=60s")
    self.transfer_that_outlasts(server, self.drain(server),
                                self.slow_way_to(server))
    self.ends_well(server)

  def test_a_connection_that_is_old_lets_a_transfer_finish(self):
    server = self.start("--connection_age=100ms")
    self.transfer_that_outlasts(server, self.age)
    status, log = server.stop()
    self.assertEqual(status, 0, log)

  def test_a_connection_that_is_old_waits_for_who_reads_slowly(self):
    server = self.start("--connection_age=100ms")
    self.transfer_that_outlasts(server, self.age, self.slow_way_to(server))
    status, log = server.stop()
    self.assertEqual(status, 0, log)

  def test_past_the_drain_a_transfer_ends(self):
    server = self.start("--drain_time=1s")
    request, _ = random_request((1, 1000, 1, 64))
    _, stream = self.open(server)
    stream.send(header=header(request))
    stream.receive()
    server.process.send_signal(signal.SIGTERM)
    self.assertEqual(stream.code(), grpc.StatusCode.UNAVAILABLE)
    self.ends_well(server)


if __name__ == "__main__":
  client.main(__doc__)
