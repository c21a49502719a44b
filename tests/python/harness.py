"""Stubs generated from the .proto alone, and an attnd to talk to."""

import atexit
import gc
import importlib
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import grpc
import grpc_tools
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from grpc_tools import protoc

# grpcio takes a channel's lock where a call is finalised. Were the collector to
# do that while the lock is held, the process would wait for itself.
gc.disable()

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


class Server:
  """An attnd process on a free port, stopped by SIGTERM.

  `binary` starts it with `flags` added, on the CPU unless they say otherwise;
  `prefix` is a command that becomes it, like taskset. `address` is where it
  listens.
  """

  START_SECONDS = 60  # a sanitizer build on a busy machine takes its time
  STOP_SECONDS = 60

  def __init__(self, binary, *flags, prefix=()):
    self._folder = tempfile.TemporaryDirectory()
    folder = pathlib.Path(self._folder.name)
    self.log_path = folder / "log"
    port_file = folder / "port"
    if not any(flag.startswith("--device=") for flag in flags):
      flags = ("--device=cpu", *flags)
    with open(self.log_path, "wb") as log:
      self.process = subprocess.Popen(
          [*prefix, binary, "--port=0", f"--port_file={port_file}", *flags],
          stdout=log, stderr=subprocess.STDOUT)
    # A test that fails must not leave it behind: whoever waits for the test's
    # output would wait for that of attnd, too.
    atexit.register(self.kill)
    deadline = time.monotonic() + self.START_SECONDS
    # The port file appears whole, and there is nothing to wait on for that.
    while not port_file.exists():
      if self.process.poll() is not None:
        raise RuntimeError(f"attnd exited {self.process.returncode}:\n"
                           + self.log())
      if time.monotonic() > deadline:
        self.process.kill()
        raise RuntimeError("attnd wrote no port file:\n" + self.log())
      time.sleep(0.01)
    self.address = f"127.0.0.1:{int(port_file.read_text())}"

  def log(self):
    return self.log_path.read_text(errors="replace")

  def admin_address(self):
    """Where it listens for operators, if it was told --admin_address."""
    # The port file may be there before the line of the log.
    deadline = time.monotonic() + self.START_SECONDS
    while True:
      found = re.search(r"admin on (127\.0\.0\.1:\d+)", self.log())
      if found:
        return found[1]
      if time.monotonic() > deadline:
        raise RuntimeError("attnd told of no admin address:\n" + self.log())
      time.sleep(0.01)

  def channel(self, address=None):
    return grpc.insecure_channel(address or self.address, CHANNEL_OPTIONS)

  def stop(self):
    """Its exit status and log."""
    if self.process.poll() is None:
      self.process.send_signal(signal.SIGTERM)
    try:
      status = self.process.wait(self.STOP_SECONDS)
    except subprocess.TimeoutExpired:
      self.process.kill()
      status = self.process.wait()
    log = self.log()
    self.kill()
    return status, log

  def kill(self):
    """Ends it, whatever it does, if it has not been stopped."""
    atexit.unregister(self.kill)
    self.process.kill()
    self.process.wait()
    self._folder.cleanup()


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
