#!/usr/bin/env python3
"""Records tests/data/golden: requests and what attnd answers to them.

    python3 tests/python/record_golden.py --server=build/release/server/attnd

Answers with tensors are held against numpy in float64 before they are written.
Run it again when the wire changes on purpose, and look at what changed;
test_golden.py replays the recordings.
"""

import argparse
import json
import pathlib
import tempfile
import unittest

import grpc

import harness
import wire
from cases import Case

GOLDEN = harness.ROOT / "tests/data/golden"


def good_requests(pb):
  """[(name, method, what it shows, bytes, check of the response)]"""
  requests = []

  def add(name, about, case, backward=False, reverse=False, plan=None, **given):
    if backward:
      request = case.backward_request(pb, **given)
      check = lambda test, r: case.check_backward(test, pb, r, **given)
    else:
      request = case.forward_request(pb)
      check = lambda test, r: case.check_forward(test, pb, r)
    if plan is not None:
      request.options.plan = plan
    data = request.SerializeToString(deterministic=True)
    if reverse:
      data = wire.reversed_fields(data)
    requests.append((name, "Backward" if backward else "Forward", about, data,
                     check))

  causal = dict(q_lens=(3,), kv_lens=(5,), q_heads=4, kv_heads=2, head_dim=8,
                value_dim=4, causal=True, seed=1)
  add("forward_f32_causal_gqa", "BSHD, 4 query heads on 2, unequal dims",
      Case(**causal))
  add("forward_f32_fields_reversed",
      "the same request, top-level fields in descending order",
      Case(**causal), reverse=True)
  add("forward_bf16_packed",
      "three sequences, one without queries, sliding window, O as f32",
      Case(layout="PACKED", dtype="bf16", o_dtype="f32", q_lens=(3, 0, 5),
           kv_lens=(4, 2, 7), head_dim=16, left=2, right=1, seed=2))
  add("forward_f16_bhsd_bias_softcap", "bias of the batch, scale and softcap",
      Case(layout="BHSD", dtype="f16", q_lens=(4, 4), kv_lens=(6, 6),
           bias="f32", bias_shape=(2, 1), scale=0.25, softcap=5.0, seed=3))
  add("forward_f32_empty_rows",
      "positions that leave rows nothing to see, lengths, NaN as padding",
      Case(q_lens=(4, 2), kv_lens=(3, 5), causal=True, q_starts=(-2, 1),
           q_stride=2, kv_stride=2, padding=1, seed=4))
  add("backward_f32_lens", "lengths, NaN as padding, O given",
      Case(q_lens=(4, 2), kv_lens=(3, 5), padding=1, causal=True, seed=5),
      backward=True)
  add("backward_bf16_delta_d_lse", "delta instead of O, gradient of LSE",
      Case(dtype="bf16", q_lens=(5,), kv_lens=(6,), q_heads=4, kv_heads=2,
           value_dim=4, seed=6),
      backward=True, with_delta=True, with_d_lse=True)
  add("backward_f32_packed", "packed, MQA",
      Case(layout="PACKED", q_lens=(1, 4), kv_lens=(3, 4), q_heads=3,
           kv_heads=1, causal=True, seed=7),
      backward=True)
  add("forward_f32_one_device", "the first request, on one device by name",
      Case(**causal), plan=pb.PLAN_ONE_DEVICE)
  return requests


def bad_requests(pb):
  """[(name, method, what is wrong, bytes)]"""
  case = Case(q_lens=(2,), kv_lens=(3,), head_dim=4, value_dim=4, seed=8)
  requests = []

  def add(name, about, change, request=None):
    request = request or case.forward_request(pb)
    method = type(request).DESCRIPTOR.name.removesuffix("Request")
    data = change(request)
    if not isinstance(data, bytes):
      data = request.SerializeToString(deterministic=True)
    requests.append((name, method, about, data))

  def put(path, value):
    def change(r):
      *parents, last = path.split(".")
      for name in parents:
        r = getattr(r, name)
      if isinstance(value, list):
        getattr(r, last)[:] = value
      else:
        setattr(r, last, value)
    return change

  add("bad_k_shape", "head_dim of k is not q's", put("k.shape", [1, 3, 2, 5]))
  add("bad_q_rank", "q has three dimensions", put("q.shape", [2, 2, 4]))
  add("bad_q_negative", "a negative dimension", put("q.shape", [1, -2, 2, 4]))
  add("bad_q_huge", "no elements, but a dimension of 2^62",
      put("q.shape", [1, 0, 2 ** 62, 4]))
  add("bad_q_data", "fewer bytes than the shape has", put("q.data", b"\0" * 63))
  add("bad_k_dtype", "k is not of q's type", put("k.dtype", pb.DATA_TYPE_F16))
  add("bad_layout", "a layout there is not", put("attention.layout", 9))
  add("bad_scale", "a scale that is not finite",
      put("attention.scale", float("inf")))
  add("bad_plan", "a plan there is not", put("options.plan", 9))
  add("bad_q_stride", "a stride of 0", put("attention.q_stride", 0))
  add("bad_q_start", "a position that overflows",
      put("attention.q_start", [2 ** 63 - 1]))
  add("bad_kv_lens", "longer than the tensor",
      put("attention.kv_lens", [4]))
  add("bad_missing_v", "no v", lambda r: r.ClearField("v"))
  def without_o(r):
    r.ClearField("o")
  add("bad_backward_without_o", "neither o nor delta", without_o,
      case.backward_request(pb))
  plain = lambda r: r.SerializeToString(deterministic=True)
  add("bad_unknown_field", "field 1234 at the top",
      lambda r: plain(r) + wire.field(1234, b"x"))
  add("bad_unknown_nested_field", "field 1234 in options",
      lambda r: plain(r) + wire.field(8, wire.field(1234, b"x")))
  add("bad_repeated_q", "q twice",
      lambda r: plain(r) + wire.field(1, r.q.SerializeToString()))
  add("bad_truncated", "cut in the middle", lambda r: plain(r)[:-40])
  add("bad_empty", "no bytes", lambda r: b"")
  return requests


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--server", required=True, help="path of attnd")
  parser.add_argument("--out", type=pathlib.Path, default=GOLDEN)
  options = parser.parse_args()

  with tempfile.TemporaryDirectory() as folder:
    pb, _ = harness.generate_stubs(folder)
  server = harness.Server(options.server)
  index = []
  options.out.mkdir(parents=True, exist_ok=True)
  for old in options.out.glob("*.bin"):
    old.unlink()
  with server.channel() as channel:
    for name, method, about, data, check in good_requests(pb):
      answer = harness.raw_call(channel, method, data)
      response = getattr(pb, method + "Response").FromString(answer)
      check(unittest.TestCase(), response)
      response.ClearField("report")  # differs from run to run
      (options.out / f"{name}.request.bin").write_bytes(data)
      (options.out / f"{name}.response.bin").write_bytes(
          response.SerializeToString(deterministic=True))
      index.append({"name": name, "method": method, "about": about,
                    "code": "OK"})
    for name, method, about, data in bad_requests(pb):
      try:
        harness.raw_call(channel, method, data)
      except grpc.RpcError as error:
        index.append({"name": name, "method": method, "about": about,
                      "code": error.code().name, "message": error.details(),
                      "fields": harness.violated_fields(error)})
      else:
        raise SystemExit(f"{name} was accepted")
      (options.out / f"{name}.request.bin").write_bytes(data)
  status, log = server.stop()
  if status != 0:
    raise SystemExit(f"attnd exited {status}:\n{log}")
  text = json.dumps(index, indent=2) + "\n"
  (options.out / "index.json").write_text(text)


if __name__ == "__main__":
  main()
