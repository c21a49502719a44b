"""Number formats: rounding to f32, f16 and bf16 with numpy alone.

Values travel as arrays of float32 (every f16 and bf16 value is one) and become
bytes only at the wire.
"""

import numpy as np

# One rounding to nearest changes a value by at most this part of it.
HALF_ULP = {"f32": 2.0 ** -24, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


def _to_bf16_bits(x):
  """Upper halves of float32, to nearest, ties to even; NaN stays NaN."""
  x = np.ascontiguousarray(x, dtype=np.float32)
  bits = x.view(np.uint32).astype(np.uint64)
  rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
  return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def round_to(dtype, x):
  """x rounded to dtype, as float32."""
  if dtype == "f32":
    return np.asarray(x, dtype=np.float32)
  return decode(dtype, encode(dtype, x), np.shape(x))


def encode(dtype, x):
  """The little-endian bytes of x, rounded to dtype."""
  if dtype == "f32":
    return np.ascontiguousarray(x, dtype="<f4").tobytes()
  if dtype == "f16":
    with np.errstate(over="ignore"):
      return np.asarray(x, dtype=np.float32).astype("<f2").tobytes()
  return _to_bf16_bits(x).astype("<u2").tobytes()


def decode(dtype, data, shape):
  """float32 array of the values in data."""
  if dtype == "f32":
    values = np.frombuffer(data, dtype="<f4")
  elif dtype == "f16":
    values = np.frombuffer(data, dtype="<f2").astype(np.float32)
  else:
    bits = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
    values = bits.view(np.float32)
  return values.reshape(shape)
