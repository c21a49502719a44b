"""Exchange streams, message by message."""

import queue

import grpc

from client import pb
from client import pb_grpc


class Stream:
  """One Exchange stream, message by message."""

  def __init__(self, channel, timeout=60):
    self._to_send = queue.SimpleQueue()
    self._call = pb_grpc.AttentionServiceStub(channel).Exchange(
        iter(self._to_send.get, None), timeout=timeout)

  def send(self, **part):
    self._to_send.put(pb.ExchangeRequest(**part))

  def half_close(self):
    self._to_send.put(None)

  def receive(self):
    return next(self._call)

  def all(self):
    return list(self._call)

  def code(self):
    """The status that the stream ends with, whatever comes before."""
    try:
      self.all()
    except grpc.RpcError:
      pass
    finally:
      self.half_close()
    return self._call.code()

  def cancel(self):
    self._call.cancel()
    self.half_close()
