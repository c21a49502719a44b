"""A forward as an Exchange, over one stream, from generated stubs alone."""
import queue
from attn.v1 import attention_pb2 as pb
from attn.v1 import attention_pb2_grpc as pb_grpc

SMALL = 64 << 10  # below so many bytes a tensor is better off in the header


def forward(channel, request, inputs, timeout=60):
  """Sends `request`, a ForwardRequest whose tensors have dtype and shape only.

  `inputs` has their bytes by field name. Returns (ForwardResponse, results).
  """
  fields = pb.ForwardRequest.DESCRIPTOR.fields_by_name
  names = {f.number: f.name for f in pb.ForwardResponse.DESCRIPTOR.fields}
  for name, data in inputs.items():
    tensor = getattr(request, name)
    if len(data) < SMALL:
      tensor.data = bytes(data)
    else:
      tensor.streamed.SetInParent()
  request.o.streamed.SetInParent()
  request.lse.streamed.SetInParent()
  to_send = queue.SimpleQueue()
  to_send.put(pb.ExchangeRequest(header=pb.ExchangeHeader(forward=request)))
  results = {"o": bytearray(), "lse": bytearray()}
  calls = pb_grpc.AttentionServiceStub(channel)
  for message in calls.Exchange(iter(to_send.get, None), timeout=timeout):
    if message.HasField("admitted"):  # before that, nothing is worth sending
      step = message.admitted.chunk_bytes
      for name, data in inputs.items():
        for at in range(0, len(data) if len(data) >= SMALL else 0, step):
          to_send.put(pb.ExchangeRequest(chunk=pb.Chunk(
              tensor=fields[name].number, offset=at, data=bytes(data[at:at + step]))))
      to_send.put(pb.ExchangeRequest(inputs_sent=pb.InputsSent()))
      to_send.put(None)  # the end of the client's side
    elif message.HasField("chunk"):  # over one stream they come in order
      results[names[message.chunk.tensor]] += message.chunk.data
    elif message.HasField("forward"):
      return message.forward, results
