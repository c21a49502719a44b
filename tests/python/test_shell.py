#!/usr/bin/env python3
"""The service from the shell, by grpcurl and `buf curl` as anyone installs them.

    python3 tests/python/test_shell.py --server=build/release/server/attnd \\
        --make_certificate=build/release/tests/make_certificate
"""

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2

import client
import harness
from cases import Case
from client import pb
from shell_tools import BufCurl
from shell_tools import Grpcurl
from shell_tools import Target

SERVICE = "attn.v1.AttentionService"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1.ServerReflection"
RELEASES = harness.ROOT / "proto" / "releases"


class FromTheShell:
  """What both tools must be able to do, against a server with reflection."""

  FLAGS = ("--reflection=all", "--admin_address=127.0.0.1:0")

  @classmethod
  def setUpClass(cls):
    if cls.TOOL.program() is None:
      reason = f"{cls.TOOL.name} is not installed: see requirements.txt"
      if os.environ.get("ATTND_REQUIRE_TOOLS"):
        raise AssertionError(reason)
      print(f"SKIPPED: {reason}", flush=True)  # for ctest
      raise unittest.SkipTest(reason)
    super().setUpClass()
    cls.tool = cls.TOOL()
    cls.public = Target(cls.server.address)
    cls.admin = Target(cls.server.admin_address())

  def ask(self, target, method, response, request="{}"):
    """Calls it, and reads its answer as a message like `response`."""
    answer = self.tool.call(target, method, request)
    self.assertEqual(answer.code, 0, answer.said)
    return json_format.Parse(answer.response, response)

  def refusal(self, target, method, request):
    answer = self.tool.call(target, method, json_format.MessageToJson(request))
    self.assertIsNone(answer.response)
    return answer

  def test_lists_services_and_methods(self):
    for target in (self.public, self.admin):
      with self.subTest(target):
        services = self.tool.services(target)
        self.assertIn(SERVICE, services)
        self.assertIn(HEALTH, services)
        self.assertIn(REFLECTION, services)
        self.assertEqual(
            set(self.tool.methods(target, HEALTH)),
            {f"{HEALTH}.Check", f"{HEALTH}.Watch"})
        self.assertEqual(
            set(self.tool.methods(target, SERVICE)),
            {f"{SERVICE}.{method}" for method in
             ("Forward", "Backward", "GetServerInfo", "Exchange")})

  def test_checks_health(self):
    for target in (self.public, self.admin):
      for service in ("", SERVICE):
        with self.subTest(target, service=service):
          health = self.ask(target, f"{HEALTH}/Check",
                            health_pb2.HealthCheckResponse(),
                            json.dumps({"service": service}))
          self.assertEqual(health.status,
                           health_pb2.HealthCheckResponse.SERVING)
    answer = self.refusal(self.public, f"{HEALTH}/Check",
                          health_pb2.HealthCheckRequest(service="nobody"))
    self.assertEqual(answer.code, grpc.StatusCode.NOT_FOUND.value[0])

  def test_asks_what_the_server_is(self):
    infos = [self.ask(target, f"{SERVICE}/GetServerInfo",
                      pb.GetServerInfoResponse())
             for target in (self.public, self.admin)]
    self.assertEqual(infos[0].limits.max_head_dim, 256)
    self.assertEqual(infos[0].devices[0].kind, "cpu")
    self.assertEqual(infos[0].server_instance_id, infos[1].server_instance_id)

  def test_computes_forward(self):
    for case in (Case(), Case(dtype="bf16", layout="PACKED", q_lens=(3, 7),
                              kv_lens=(9, 8), q_heads=4, kv_heads=2,
                              causal=True, scale=0.3)):
      with self.subTest(case):
        request = json_format.MessageToJson(case.forward_request(pb))
        case.check_forward(self, pb, self.ask(
            self.public, f"{SERVICE}/Forward", pb.ForwardResponse(), request))

  def test_computes_backward(self):
    case = Case(q_lens=(6,), kv_lens=(9,), q_heads=4, kv_heads=2, causal=True)
    request = json_format.MessageToJson(case.backward_request(pb))
    case.check_backward(self, pb, self.ask(
        self.public, f"{SERVICE}/Backward", pb.BackwardResponse(), request))

  def test_reads_which_field_is_wrong(self):
    request = Case().forward_request(pb)
    request.v.shape[1] += 1
    answer = self.refusal(self.public, f"{SERVICE}/Forward", request)
    self.assertEqual(answer.code, grpc.StatusCode.INVALID_ARGUMENT.value[0])
    self.assertIn("v.shape", answer.said)
    self.assert_shows_field(answer, "v.shape")

  def test_computes_nothing_on_the_operators_address(self):
    answer = self.refusal(self.admin, f"{SERVICE}/Forward",
                          Case().forward_request(pb))
    self.assertEqual(answer.code, grpc.StatusCode.UNIMPLEMENTED.value[0])

  def test_needs_no_reflection_where_it_has_the_schema(self):
    other = harness.Server(client.OPTIONS.server)
    with self.assertRaises(AssertionError):
      self.tool.services(Target(other.address))
    case = Case()
    request = json_format.MessageToJson(case.forward_request(pb))
    for schema in self.SCHEMAS:
      with self.subTest(schema):
        target = Target(other.address, schema=schema)
        self.assertIn(SERVICE, self.tool.services(target))
        case.check_forward(self, pb, self.ask(
            target, f"{SERVICE}/Forward", pb.ForwardResponse(), request))
    status, log = other.stop()
    self.assertEqual(status, 0, log)

  def test_calls_over_tls_with_a_token(self):
    with tempfile.TemporaryDirectory() as folder:
      folder = pathlib.Path(folder)
      for made in (["ca", "--authority"],
                   ["server", "--ca=ca", "--ip=127.0.0.1"]):
        subprocess.run([client.OPTIONS.make_certificate, *made], cwd=folder, check=True)
      token = "5e" * 32
      (folder / "tokens").write_text(
          f"shell sha256:{hashlib.sha256(token.encode()).hexdigest()}\n")
      other = harness.Server(
          client.OPTIONS.server, "--reflection=all", "--require_identity",
          f"--token_file={folder / 'tokens'}",
          f"--tls_cert={folder / 'server.pem'}",
          f"--tls_key={folder / 'server.key'}")
      cacert = str(folder / "ca.pem")
      case = Case()
      request = case.forward_request(pb)
      nobody = Target(other.address, cacert=cacert)
      self.assertIn(SERVICE, self.tool.services(nobody))
      answer = self.refusal(nobody, f"{SERVICE}/Forward", request)
      self.assertEqual(answer.code, grpc.StatusCode.UNAUTHENTICATED.value[0])
      case.check_forward(self, pb, self.ask(
          Target(other.address, cacert=cacert, token=token),
          f"{SERVICE}/Forward", pb.ForwardResponse(),
          json_format.MessageToJson(request)))
      status, log = other.stop()
      self.assertEqual(status, 0, log)


class GrpcurlTest(FromTheShell, client.ClientTest):

  TOOL = Grpcurl
  SCHEMAS = [str(path) for path in RELEASES.glob("*.binpb")]

  def test_describes_the_service_and_its_messages(self):
    for target in (self.public, self.admin):
      with self.subTest(target):
        service = self.tool.describe(target, SERVICE)
        self.assertIn("rpc Forward ( .attn.v1.ForwardRequest ) "
                      "returns ( .attn.v1.ForwardResponse );", service)
        self.assertIn("rpc Exchange ( stream .attn.v1.ExchangeRequest ) "
                      "returns ( stream .attn.v1.ExchangeResponse );", service)
        for message, field in (
            ("attn.v1.ForwardRequest", ".attn.v1.Tensor q = 1;"),
            ("attn.v1.Tensor", "bytes data = 15;"),
            ("attn.v1.Attention", "optional float scale = 2;"),
            ("attn.v1.BackwardRequest", ".attn.v1.Tensor d_o = 6;"),
            ("attn.v1.DataType", "DATA_TYPE_BF16 = 3;"),
            ("grpc.health.v1.HealthCheckRequest", "string service = 1;"),
            ("google.rpc.RetryInfo", "retry_delay = 1;")):
          self.assertIn(field, self.tool.describe(target, message))

  def assert_shows_field(self, answer, field):
    """The details, decoded by what reflection says of them, are in the text."""
    details, rest = {}, answer.said
    while "{" in rest:
      rest = rest[rest.index("{"):]
      detail, end = json.JSONDecoder().raw_decode(rest)
      details[detail["@type"].rpartition("/")[2]] = detail
      rest = rest[end:]
    violations = details["google.rpc.BadRequest"]["field_violations"]
    self.assertEqual([v["field"] for v in violations], [field])
    self.assertEqual(details["google.rpc.ErrorInfo"]["reason"], "INVALID")


class BufCurlTest(FromTheShell, client.ClientTest):

  TOOL = BufCurl
  # Also the folder of the .proto files.
  SCHEMAS = GrpcurlTest.SCHEMAS + [str(harness.ROOT / "proto")]

  def assert_shows_field(self, answer, field):
    """The details are there by name; this tool leaves their bytes as they are."""
    details = {}
    for detail in json.loads(answer.said)["details"]:
      padded = detail["value"] + "=" * (-len(detail["value"]) % 4)
      details[detail["type"]] = base64.b64decode(padded)
    found = error_details_pb2.BadRequest.FromString(
        details["google.rpc.BadRequest"])
    self.assertEqual([v.field for v in found.field_violations], [field])
    why = error_details_pb2.ErrorInfo.FromString(details["google.rpc.ErrorInfo"])
    self.assertEqual(why.reason, "INVALID")


if __name__ == "__main__":
  client.main(__doc__, programs=("make_certificate",))
