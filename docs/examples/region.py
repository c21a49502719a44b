"""A forward in memory that is shared with the server, from generated stubs alone."""
import mmap
import os
import socket
import numpy as np
from attn.v1 import attention_pb2 as pb
from attn.v1 import attention_pb2_grpc as pb_grpc
from attn.v1 import region_pb2


class Region:
  """Memory of the server's that listens at `path` (attnd --region_socket)."""

  def __init__(self, path, size):
    self.lease = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    self.lease.connect(path)  # to close it ends the lease
    ask = region_pb2.RegionRequest(lease=region_pb2.LeaseHostMemory(bytes=size))
    self.lease.send(ask.SerializeToString())
    packet, descriptors, _, _ = socket.recv_fds(self.lease, 4096, 1)
    reply = region_pb2.RegionReply.FromString(packet)
    if reply.status:  # a google.rpc.Status
      raise RuntimeError(f"no region: {reply.status}")
    self.id = reply.region
    self.bytes = np.frombuffer(mmap.mmap(descriptors[0], reply.bytes), np.uint8)
    os.close(descriptors[0])  # what is mapped stays
    self.used = 0

  def array(self, shape, dtype=np.float32):
    """Room for an array, which begins at a multiple of 256 bytes."""
    begin, end = self.used, self.used + int(np.prod(shape)) * np.dtype(dtype).itemsize
    self.used = -(-end // 256) * 256
    return self.bytes[begin:end].view(dtype).reshape(shape)

  def where(self, array):
    return pb.RegionSlice(region=self.id, offset=array.ctypes.data - self.bytes.ctypes.data)


def forward(channel, region, q, k, v, timeout=60):
  """O of float32 arrays [batch, len, heads, dim] of `region`, where it lies too."""
  o = region.array((*q.shape[:-1], v.shape[-1]))
  q, k, v = (pb.Tensor(dtype=pb.DATA_TYPE_F32, shape=a.shape, region=region.where(a))
             for a in (q, k, v))
  request = pb.ForwardRequest(q=q, k=k, v=v, o=pb.OutputSpec(region=region.where(o)))
  pb_grpc.AttentionServiceStub(channel).Forward(request, timeout=timeout)
  return o
