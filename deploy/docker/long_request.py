#!/usr/bin/env python3
"""A request that takes one thread seconds, and whose answer is known.

    long_request.py write FOLDER    writes q.npy, k.npy and v.npy
    long_request.py judge FOLDER    looks at o.npy, what attnctl forward made of them

Q and K are arbitrary, and every element of V is 1. Each row of O is a weighted mean of
rows of V, so every element of O is 1 as well, whatever the weights are.
"""

import array
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
import npy  # noqa: E402

SHAPE = (1, 16384, 8, 64)  # [batch, tokens, heads, head_dim], 550 GFLOP
COUNT = SHAPE[0] * SHAPE[1] * SHAPE[2] * SHAPE[3]


def write(folder):
    some = array.array("f", (random.Random(1).uniform(-1, 1) for _ in range(65536)))
    for name, values in ("q", some), ("k", some), ("v", array.array("f", [1.0]) * len(some)):
        with open(f"{folder}/{name}.npy", "wb") as file:
            file.write(npy.header(SHAPE))
            (values * (COUNT // len(values))).tofile(file)


def judge(folder):
    with open(f"{folder}/o.npy", "rb") as file:
        start = file.read(10)
        file.seek(10 + int.from_bytes(start[8:10], "little"))
        values = array.array("f")
        values.frombytes(file.read())
    if len(values) != COUNT:
        sys.exit(f"o.npy has {len(values)} elements, not {COUNT}")
    worst = max(max(values) - 1, 1 - min(values))
    if not worst < 1e-4:
        sys.exit(f"O is {worst} off")


if __name__ == "__main__":
    {"write": write, "judge": judge}[sys.argv[1]](sys.argv[2])
