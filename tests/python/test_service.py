#!/usr/bin/env python3
"""What attnd says of itself, where it listens, and calls given up.

    python3 tests/python/test_service.py --server=build/release/server/attnd
"""

import tempfile
import threading

import grpc
import numpy as np
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase)

import cases
import client
import harness
from cases import Case
from client import pb
from client import pb_grpc

SERVICE = "attn.v1.AttentionService"


class ServiceTest(client.ClientTest):

  FLAGS = ("--reflection=all",)

  def test_server_info(self):
    info = self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
    self.assertRegex(info.server_instance_id, r"^[0-9a-f]{32}$")
    self.assertTrue(info.version)
    self.assertEqual(info.limits.max_head_dim, 256)
    self.assertEqual(info.limits.max_request_sequences, 1 << 14)
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
    other = harness.Server(client.OPTIONS.server)
    with other.channel() as other_channel:
      other_stub = pb_grpc.AttentionServiceStub(other_channel)
      ids = [s.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
             .server_instance_id for s in (self.stub, other_stub, other_stub)]
    status, log = other.stop()
    self.assertEqual(status, 0, log)
    self.assertNotEqual(ids[0], ids[1])
    self.assertEqual(ids[1], ids[2])

  def test_the_same_answer_over_a_unix_socket(self):
    request = Case().forward_request(pb)
    with tempfile.TemporaryDirectory() as folder:
      socket = f"{folder}/attnd.sock"
      other = harness.Server(client.OPTIONS.server, f"--unix_socket={socket}")
      answers = []
      for address in (other.address, f"unix:{socket}"):
        with other.channel(address) as other_channel:
          other_stub = pb_grpc.AttentionServiceStub(other_channel)
          answers.append(other_stub.Forward(request, timeout=60))
      status, log = other.stop()
    self.assertEqual(status, 0, log)
    self.assertEqual(answers[0].o, answers[1].o)

  def test_a_connection_that_was_closed_for_being_idle_is_made_again(self):
    other = harness.Server(client.OPTIONS.server, "--idle_timeout=100ms")
    with other.channel() as other_channel:
      closed = threading.Semaphore(0)
      other_channel.subscribe(
          lambda state: state == grpc.ChannelConnectivity.IDLE
          and closed.release())
      # As a channel starts out.
      self.assertTrue(closed.acquire(timeout=60))
      other_stub = pb_grpc.AttentionServiceStub(other_channel)
      for _ in range(3):
        other_stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
        self.assertTrue(closed.acquire(timeout=60))
    status, log = other.stop()
    self.assertEqual(status, 0, log)

  def test_health(self):
    health = health_pb2_grpc.HealthStub(self.channel)
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
    database = ProtoReflectionDescriptorDatabase(self.channel)
    self.assertIn(SERVICE, database.get_services())
    for service in database.get_services():
      file = database.FindFileContainingSymbol(service)
      names = {f"{file.package}.{s.name}" for s in file.service}
      self.assertIn(service, names)
    self.assertIn("grpc.health.v1.Health", database.get_services())
    details = database.FindFileContainingSymbol("google.rpc.BadRequest")
    self.assertIn("RetryInfo", {m.name for m in details.message_type})
    found = database.FindFileContainingSymbol(SERVICE)
    self.assertEqual(found.package, "attn.v1")
    methods = {m.name for m in found.service[0].method}
    self.assertEqual(methods, {"Forward", "Backward", "GetServerInfo",
                               "Exchange"})

  def test_only_who_asks_for_reflection_gets_it(self):
    other = harness.Server(client.OPTIONS.server)
    with other.channel() as other_channel:
      with self.assertRaises(grpc.RpcError) as caught:
        ProtoReflectionDescriptorDatabase(other_channel).get_services()
      self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
    status, log = other.stop()
    self.assertEqual(status, 0, log)

  def test_a_health_watch_tells_the_status(self):
    watch = health_pb2_grpc.HealthStub(self.channel).Watch(
        health_pb2.HealthCheckRequest(service=SERVICE), timeout=60)
    self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
    watch.cancel()

  def test_an_expired_deadline_and_a_cancelled_call(self):
    # Hundreds of GFLOP: no server is done with it in 10 ms.
    zeros = cases.tensor(pb, np.zeros((1, 16384, 4, 64)), "f16")
    request = pb.ForwardRequest(q=zeros, k=zeros, v=zeros)
    with self.assertRaises(grpc.RpcError) as caught:
      self.stub.Forward(request, timeout=0.01)
    self.assertEqual(caught.exception.code(),
                     grpc.StatusCode.DEADLINE_EXCEEDED)
    for _ in range(5):
      self.stub.Forward.future(request, timeout=60).cancel()
    self.forward(Case().forward_request(pb))


if __name__ == "__main__":
  client.main(__doc__)
