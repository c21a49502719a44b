"""NumPy's files, for scripts that have no NumPy."""


def header(shape):
    """What precedes the values of a float32 array: version 1.0, padded to 64 bytes."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
