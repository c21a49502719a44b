"""Protobuf's wire format by hand, for bytes that no generated stub sends."""


def varint(value):
  """A base-128 integer."""
  value &= (1 << 64) - 1
  out = bytearray()
  while value > 0x7F:
    out.append(value & 0x7F | 0x80)
    value >>= 7
  out.append(value)
  return bytes(out)


def field(number, payload):
  """A length-delimited field: bytes, a string, a message or packed numbers."""
  return varint(number << 3 | 2) + varint(len(payload)) + payload


def integer(number, value):
  """A varint field."""
  return varint(number << 3) + varint(value)


def _read_varint(data, at):
  value = shift = 0
  while True:
    byte = data[at]
    at += 1
    value |= (byte & 0x7F) << shift
    shift += 7
    if byte < 0x80:
      return value, at


def reversed_fields(data):
  """A message of length-delimited fields with those in opposite order."""
  fields, at = [], 0
  while at < len(data):
    tag, body = _read_varint(data, at)
    if tag & 7 != 2:
      raise ValueError(f"field {tag >> 3} is not length-delimited")
    size, body = _read_varint(data, body)
    fields.append(data[at:body + size])
    at = body + size
  return b"".join(reversed(fields))
