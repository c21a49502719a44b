#!/usr/bin/env python3
"""Replays tests/data/golden against attnd.

    python3 tests/python/test_golden.py --server=build/release/server/attnd
"""

import json

import grpc
import numpy as np

import cases
import client
import harness
import numerics
from client import pb

GOLDEN = harness.ROOT / "tests/data/golden"
# Another instruction set sums in another order. Two answers may lie this many
# half ulps of a tensor's largest value apart: 16-bit results are f32 sums
# rounded once, so a neighbour at most and its rounding (2 + 2); f32 results
# carry the rounding of sums over at most 7 keys and 16 dims, twice. Of 16-bit
# inputs P and dS may be rounded alike, and then f32 results carry that.
HALF_ULPS = {"f32": 32, "f16": 4, "bf16": 4}


class GoldenTest(client.ClientTest):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.index = json.loads((GOLDEN / "index.json").read_text())

  def request(self, entry):
    return (GOLDEN / f"{entry['name']}.request.bin").read_bytes()

  def assert_same_tensor(self, name, got, want, rounded):
    self.assertEqual(got.dtype, want.dtype, name)
    self.assertEqual(got.shape, want.shape, name)
    (got, dtype), (want, _) = (cases.array(pb, t) for t in (got, want))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], name)
    if finite.any():
      limit = (max(HALF_ULPS[d] * numerics.HALF_ULP[d]
                   for d in (dtype, rounded))
               * np.abs(want[finite]).max())
      self.assertLessEqual(np.abs(got[finite] - want[finite]).max(), limit,
                           name)

  def test_requests_get_the_recorded_answers(self):
    good = [entry for entry in self.index if entry["code"] == "OK"]
    self.assertTrue(good)
    for entry in good:
      with self.subTest(entry["name"]):
        request = getattr(pb, entry["method"] + "Request").FromString(
            self.request(entry))
        _, dtype = cases.array(pb, request.q)
        kind = getattr(pb, entry["method"] + "Response")
        want = kind.FromString(
            (GOLDEN / f"{entry['name']}.response.bin").read_bytes())
        got = kind.FromString(harness.raw_call(
            self.channel, entry["method"], self.request(entry)))
        self.assertTrue(got.HasField("report"))
        got.ClearField("report")
        tensors = lambda r: {f.name: t for f, t in r.ListFields()}
        self.assertEqual(tensors(got).keys(), tensors(want).keys())
        for name, tensor in tensors(want).items():
          # The LSE comes from S, which is f32 whatever the inputs are.
          rounded = "f32" if name == "lse" else dtype
          self.assert_same_tensor(name, tensors(got)[name], tensor, rounded)

  def test_bad_requests_get_the_recorded_codes_and_fields(self):
    bad = [entry for entry in self.index if entry["code"] != "OK"]
    self.assertTrue(bad)
    for entry in bad:
      with self.subTest(entry["name"]):
        with self.assertRaises(grpc.RpcError) as caught:
          harness.raw_call(self.channel, entry["method"], self.request(entry))
        error = caught.exception
        self.assertEqual(error.code().name, entry["code"])
        self.assertEqual(harness.violated_fields(error), entry["fields"])

  def test_every_file_is_in_the_index(self):
    named = {"index.json", "README.md"}
    for entry in self.index:
      named.add(f"{entry['name']}.request.bin")
      if entry["code"] == "OK":
        named.add(f"{entry['name']}.response.bin")
    self.assertEqual({path.name for path in GOLDEN.iterdir()}, named)


if __name__ == "__main__":
  client.main(__doc__)
