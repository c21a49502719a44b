"""Requests whose tensors lie in a region, and packets of the region socket."""

import os
import socket

import numpy as np
from google.rpc import code_pb2
from google.rpc import status_pb2

from client import pb  # which makes the stubs
from attn.v1 import region_pb2  # pylint: disable=wrong-import-order

ALIGNMENT = 256
WIDTHS = {pb.DATA_TYPE_F32: 4, pb.DATA_TYPE_F16: 2, pb.DATA_TYPE_BF16: 2}


class Placer:
  """Deals a region's bytes, a one-dimensional array, out to tensors."""

  def __init__(self, region_id, memory):
    self.id, self.memory = region_id, memory
    self._used = 0

  def room(self, size):
    """The RegionSlice of so many bytes, followed by some that are nobody's."""
    at = self._used
    self._used = -(-(at + size) // ALIGNMENT) * ALIGNMENT + ALIGNMENT
    assert self._used <= len(self.memory)
    return pb.RegionSlice(region=self.id, offset=at)

  def move(self, request, *names):
    """Moves these inputs from the message into the region."""
    for name in names:
      tensor = getattr(request, name)
      place = self.room(len(tensor.data))
      self.memory[place.offset:place.offset + len(tensor.data)] = (
          np.frombuffer(tensor.data, np.uint8))
      tensor.region.CopyFrom(place)

  def place(self, request, *names):
    """Asks for these results in the region."""
    for name in names:
      getattr(request, name).region.CopyFrom(
          self.room(result_bytes(request, name)))

  def fetch(self, response):
    """Moves the results that are in the region into the message."""
    for field, tensor in response.ListFields():
      if field.message_type is pb.Tensor.DESCRIPTOR and tensor.HasField("region"):
        at = tensor.region.offset
        size = int(np.prod(tensor.shape)) * WIDTHS[tensor.dtype]
        tensor.data = self.memory[at:at + size].tobytes()
    return response


def result_bytes(request, name):
  """Of a result of the inputs' type."""
  q = request.q
  if name == "lse":
    heads, length = ((1, 2) if request.attention.layout == pb.LAYOUT_BHSD
                     else (-2, -3))
    batch = q.shape[0] if len(q.shape) == 4 else 1
    return 4 * batch * q.shape[heads] * q.shape[length]
  like = {"o": q, "dq": q, "dk": request.k, "dv": request.v}[name]
  shape = list(like.shape)
  if name == "o":
    shape[-1] = request.v.shape[-1]
  return int(np.prod(shape)) * WIDTHS[q.dtype]


class Asked:
  """What comes of a packet that is sent to the region socket at `path`."""

  def __init__(self, path, packet, descriptors=()):
    self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    self.socket.settimeout(60)
    self.socket.connect(path)
    socket.send_fds(self.socket, [packet], descriptors)
    answer, fds, _, _ = socket.recv_fds(self.socket, 4096, 4)
    for fd in fds:
      os.close(fd)
    self.descriptors = len(fds)
    self.reply = region_pb2.RegionReply.FromString(answer)

  @property
  def code(self):
    """The name of the status' code."""
    status = status_pb2.Status.FromString(self.reply.status)
    return code_pb2.Code.Name(status.code)

  def has_ended(self):
    """Waits for the server to close it, and closes it as well."""
    with self.socket:
      return self.socket.recv(1) == b""


def lease(size):
  """A packet that asks for a region of so many bytes."""
  return region_pb2.RegionRequest(
      lease=region_pb2.LeaseHostMemory(bytes=size)).SerializeToString()
