#!/usr/bin/env python3
"""Plans through a server with four virtual devices: results, and what is said of them.

    python3 tests/python/test_plans.py --server=build/release/server/attnd
"""

import numpy

import client
from cases import Case
from client import pb


# With 4 heads whole ones divide; with 3 some are cut.
CASES = [Case(q_lens=(600,), kv_lens=(600,), q_heads=heads, kv_heads=heads)
         for heads in (3, 4)]
# What has one device's bits, forward, and what merges: where keys and values go
# round, so that a device begins with its own, and where they are shared out.
ALIKE = (pb.PLAN_HEADS, pb.PLAN_GATHER)
MERGED = (pb.PLAN_RING, pb.PLAN_STRIPED, pb.PLAN_ZIGZAG, pb.PLAN_KV)
# Masks that leave blocks out, sequences of fewer tokens than devices, and decode.
MERGED_CASES = [
    Case(q_lens=(301,), kv_lens=(301,), causal=True, dtype="bf16"),
    Case(q_lens=(203,), kv_lens=(203,), q_heads=4, causal=True, left=40,
         softcap=3.0),
    Case(layout="PACKED", q_lens=(90, 0, 3, 150), kv_lens=(90, 2, 3, 77),
         o_dtype="f32", dtype="f16"),
    Case(layout="BHSD", q_lens=(64, 37), kv_lens=(80, 5), padding=3,
         q_starts=(9,), q_stride=2, causal=True, bias="f32", bias_shape=(2, 2)),
    Case(q_lens=(1, 4, 4), kv_lens=(1500, 900, 130), q_heads=8, kv_heads=2,
         padding=2, causal=True, dtype="bf16")]


class PlansTest(client.ClientTest):

  FLAGS = ("--device=cpu*4",)

  def responses(self, plan, case=CASES[1]):
    """Of every method, asked for by this plan."""
    for request, call in ((case.forward_request(pb), self.forward),
                          (case.backward_request(pb), self.backward)):
      request.options.plan = plan
      with self.subTest(plan=pb.Plan.Name(plan), call=call.__name__):
        yield call(request)

  def test_results_are_those_of_one_device(self):
    for case in CASES:
      forward, backward = (one for one in
                           self.responses(pb.PLAN_ONE_DEVICE, case))
      for plan in ALIKE:
        shared, gradients = (one for one in self.responses(plan, case))
        self.assertEqual(shared.o.data, forward.o.data)
        self.assertEqual(shared.lse.data, forward.lse.data)
        for name in ("dq", "dk", "dv"):
          numpy.testing.assert_allclose(
              self.floats(getattr(gradients, name)),
              self.floats(getattr(backward, name)), rtol=1e-4, atol=1e-5)

  def test_results_of_what_merges_are_within_the_bounds(self):
    for plan in MERGED:
      for number, case in enumerate(CASES + MERGED_CASES):
        forward, backward = (one for one in self.responses(plan, case))
        again, _ = (one for one in self.responses(plan, case))
        with self.subTest(plan=pb.Plan.Name(plan), case=number):
          case.check_forward(self, pb, forward)
          case.check_backward(self, pb, backward)
          self.assertEqual(forward.o.data, again.o.data)
          self.assertEqual(forward.lse.data, again.lse.data)

  def floats(self, tensor):
    self.assertEqual(tensor.dtype, pb.DATA_TYPE_F32)
    return numpy.frombuffer(tensor.data, numpy.float32)

  def exchanged(self, plan):
    """The answer to the same forward by an Exchange, with its tensors in it."""
    forward = CASES[1].forward_request(pb)
    forward.options.plan = plan
    parts = [pb.ExchangeRequest(header=pb.ExchangeHeader(forward=forward)),
             pb.ExchangeRequest(inputs_sent=pb.InputsSent())]
    for response in self.stub.Exchange(iter(parts), timeout=60):
      if response.HasField("forward"):
        return response.forward
    self.fail("no response")

  def test_the_server_says_that_it_has_a_team(self):
    info = self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
    self.assertIn("plans", info.features)
    self.assertIn("team", [device.kind for device in info.devices])

  def assert_has_a_plan(self, report):
    self.assertTrue(report.device.startswith("team:0"), report.device)
    self.assertIn(report.plan.plan, ALIKE + MERGED)
    self.assertTrue(report.plan.why)
    self.assertGreater(report.plan.predicted_ns, 0)
    self.assertEqual(len(report.plan.devices), 4)
    for device in report.plan.devices:
      self.assertTrue(device.device)
      self.assertGreater(device.busy_ns, 0)

  def test_a_teams_report_says_what_was_asked_for(self):
    for plan in ALIKE + MERGED:
      forward, backward = (one.report for one in self.responses(plan))
      exchanged = self.exchanged(plan).report
      for report in (forward, backward, exchanged):
        self.assert_has_a_plan(report)
      self.assertEqual(forward.plan.plan, plan)
      self.assertEqual(exchanged.plan.plan, plan)
      self.assertEqual(backward.plan.plan, plan)

  def test_an_exchange_has_the_same_results(self):
    for plan in ALIKE + MERGED:
      forward, _ = (one for one in self.responses(plan))
      exchanged = self.exchanged(plan)
      self.assertEqual(exchanged.o.data, forward.o.data)
      self.assertEqual(exchanged.lse.data, forward.lse.data)

  def test_one_device_is_no_team(self):
    for response in self.responses(pb.PLAN_ONE_DEVICE):
      self.assertTrue(response.report.device.startswith("cpu:"))
      self.assertFalse(response.report.HasField("plan"))
    report = self.exchanged(pb.PLAN_ONE_DEVICE).report
    self.assertFalse(report.HasField("plan"))


if __name__ == "__main__":
  client.main(__doc__)
