#!/usr/bin/env python3
"""Writes the tensors that `helm test` sends, and the answer that it expects.

    deploy/checks/make_test_tensors.py [FOLDER]   deploy/helm/attnd/files by default

Three tokens, two query heads of dimension 8 on one K/V head, causal, in f32. The answer
is computed in float64 from the inputs as they are sent.
"""

import math
import pathlib
import random
import struct
import sys

import npy

FILES = pathlib.Path(__file__).resolve().parents[1] / "helm/attnd/files"
TOKENS, HEADS, DIM = 3, 2, 8


def rows(rng, count):
    """`count` rows of DIM normal numbers, each what float32 makes of it."""
    numbers = struct.pack(f"<{count * DIM}f", *(rng.gauss(0, 1) for _ in range(count * DIM)))
    flat = struct.unpack(f"<{count * DIM}f", numbers)
    return [flat[i * DIM:(i + 1) * DIM] for i in range(count)]


def attend(q, k, v):
    """The row of O and the LSE of one query over the keys that it sees."""
    scores = [math.fsum(a * b for a, b in zip(q, key)) / math.sqrt(DIM) for key in k]
    lse = math.log(math.fsum(math.exp(s) for s in scores))
    weights = [math.exp(s - lse) for s in scores]
    return [math.fsum(w * row[d] for w, row in zip(weights, v)) for d in range(DIM)], lse


def tensors():
    """(shape, values) by name; layouts are those of attention.proto."""
    rng = random.Random(35)
    q = rows(rng, TOKENS * HEADS)  # q[token * HEADS + head]
    k, v = rows(rng, TOKENS), rows(rng, TOKENS)
    o, lse = [], [[] for _ in range(HEADS)]
    for token in range(TOKENS):
        for head in range(HEADS):
            row, row_lse = attend(q[token * HEADS + head], k[:token + 1], v[:token + 1])
            o.append(row)
            lse[head].append(row_lse)
    wide, narrow = (1, TOKENS, HEADS, DIM), (1, TOKENS, 1, DIM)
    return {"q": (wide, sum(q, ())), "k": (narrow, sum(k, ())), "v": (narrow, sum(v, ())),
            "o": (wide, sum(o, [])), "lse": ((1, HEADS, TOKENS), sum(lse, []))}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FILES
    for name, (shape, values) in tensors().items():
        (folder / f"{name}.npy").write_bytes(
            npy.header(shape) + struct.pack(f"<{len(values)}f", *values))


if __name__ == "__main__":
    main()
