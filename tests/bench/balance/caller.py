#!/usr/bin/env python3
"""One client of balance_bench.py: calls, one after the other, for a while.

Reads what to do as JSON on its command line, says `ready`, waits for a line, and writes
what became of each call as JSON: [seconds since then, latency in seconds, code].
"""

import json
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import harness  # noqa: E402

import grpc  # noqa: E402


def main():
    job = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        pb, pb_grpc = harness.generate_stubs(folder)
    tokens, dim = job["tokens"], job["dim"]
    tensor = pb.Tensor(dtype=pb.DATA_TYPE_F32, shape=[1, tokens, 1, dim],
                       data=bytes(4 * tokens * dim))
    request = pb.ForwardRequest(q=tensor, k=tensor, v=tensor)
    options = [*harness.CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0),
               *(tuple(option) for option in job["options"])]
    channel = grpc.insecure_channel(job["target"], options)
    forward = pb_grpc.AttentionServiceStub(channel).Forward
    print("ready", flush=True)
    sys.stdin.readline()
    calls, begin = [], time.monotonic()
    while (now := time.monotonic()) < begin + job["seconds"]:
        code = "OK"
        try:
            forward(request, timeout=30)
        except grpc.RpcError as error:
            code = error.code().name
            time.sleep(0.01)  # as who would not ask again at once
        calls.append([now - begin, time.monotonic() - now, code])
    json.dump(calls, sys.stdout)


if __name__ == "__main__":
    main()
