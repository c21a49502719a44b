"""Stubs generated from the .proto alone, and an attnd to talk to."""

import gc
import importlib
import pathlib
import sys
import tempfile

import grpc
import grpc_tools
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from grpc_tools import protoc

# grpcio takes a channel's lock where a call is finalised. Were the collector to
# do that while the lock is held, the process would wait for itself.
gc.disable()

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "process"))
import attnd_process  # noqa: E402

PROTOS = ["attn/v1/attention.proto", "attn/v1/region.proto"]
# What a user of generated stubs sets: the default receive limit is 4 MiB.
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1),
                   ("grpc.max_send_message_length", -1)]


def generate_stubs(folder):
  """The modules (attention_pb2, attention_pb2_grpc), generated into folder.

  With region_pb2, which is imported as well.
  """
  well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
  arguments = ["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}",
               f"--python_out={folder}", f"--grpc_python_out={folder}", *PROTOS]
  if protoc.main(arguments) != 0:
    raise RuntimeError(f"protoc failed: {arguments}")
  sys.path.insert(0, str(folder))
  try:
    importlib.import_module("attn.v1.region_pb2")
    return (importlib.import_module("attn.v1.attention_pb2"),
            importlib.import_module("attn.v1.attention_pb2_grpc"))
  finally:
    sys.path.remove(str(folder))


class Server(attnd_process.Attnd):
  """An attnd process on a free port, stopped by SIGTERM.

  `binary` starts it with `flags` added, on the CPU unless they say otherwise;
  `prefix` is a command that becomes it, like taskset. `address` is where it
  listens. It listens for operators only if `flags` say so: benchmarks also start
  older binaries, which may have no such flag.
  """

  STOP_SECONDS = 60

  def __init__(self, binary, *flags, prefix=()):
    self._folder = tempfile.TemporaryDirectory()
    super().__init__(binary, *flags, prefix=prefix,
                     defaults=("--device=cpu", "--port=0"),
                     log=pathlib.Path(self._folder.name) / "log")
    self.address = self.target

  def admin_address(self):
    """Where it listens for operators, if it was told --admin_address."""
    return f"{self.admin[0]}:{self.admin[1]}"

  def channel(self, address=None):
    return grpc.insecure_channel(address or self.address, CHANNEL_OPTIONS)

  def stop(self):
    """Its exit status and log."""
    status = self.end(self.STOP_SECONDS)
    log = self.log()
    self._folder.cleanup()
    return status, log


def raw_call(channel, method, data, **options):
  """Sends bytes as they are; the response's bytes, or raises grpc.RpcError."""
  call = channel.unary_unary(f"/attn.v1.AttentionService/{method}",
                             request_serializer=None,
                             response_deserializer=None)
  return call(data, timeout=60, **options)


def violated_fields(error):
  """The fields that the BadRequest details of a grpc.RpcError name."""
  status = rpc_status.from_call(error)
  fields = []
  for detail in status.details if status else ():
    bad_request = error_details_pb2.BadRequest()
    if detail.Unpack(bad_request):
      fields += [violation.field for violation in bad_request.field_violations]
  return fields
