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
      for plan in (pb.PLAN_HEADS, pb.PLAN_GATHER):
        shared, gradients = (one for one in self.responses(plan, case))
        self.assertEqual(shared.o.data, forward.o.data)
        self.assertEqual(shared.lse.data, forward.lse.data)
        for name in ("dq", "dk", "dv"):
          numpy.testing.assert_allclose(
              self.floats(getattr(gradients, name)),
              self.floats(getattr(backward, name)), rtol=1e-4, atol=1e-5)

  def floats(self, tensor):
    self.assertEqual(tensor.dtype, pb.DATA_TYPE_F32)
    return numpy.frombuffer(tensor.data, numpy.float32)

  def exchanged(self, plan):
    """The report of the same forward by an Exchange, with its tensors in it."""
    forward = CASES[1].forward_request(pb)
    forward.options.plan = plan
    parts = [pb.ExchangeRequest(header=pb.ExchangeHeader(forward=forward)),
             pb.ExchangeRequest(inputs_sent=pb.InputsSent())]
    for response in self.stub.Exchange(iter(parts), timeout=60):
      if response.HasField("forward"):
        return response.forward.report
    self.fail("no response")

  def test_the_server_says_that_it_has_a_team(self):
    info = self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=60)
    self.assertIn("plans", info.features)
    self.assertIn("team", [device.kind for device in info.devices])

  def assert_has_a_plan(self, report, plan):
    self.assertTrue(report.device.startswith("team:0"), report.device)
    self.assertEqual(report.plan.plan, plan)
    self.assertTrue(report.plan.why)
    self.assertGreater(report.plan.predicted_ns, 0)
    self.assertEqual(len(report.plan.devices), 4)
    for device in report.plan.devices:
      self.assertTrue(device.device)
      self.assertGreater(device.busy_ns, 0)

  def test_a_teams_report_says_what_was_asked_for(self):
    for plan in (pb.PLAN_HEADS, pb.PLAN_GATHER):
      for response in self.responses(plan):
        self.assert_has_a_plan(response.report, plan)
      self.assert_has_a_plan(self.exchanged(plan), plan)

  def test_one_device_is_no_team(self):
    for response in self.responses(pb.PLAN_ONE_DEVICE):
      self.assertTrue(response.report.device.startswith("cpu:"))
      self.assertFalse(response.report.HasField("plan"))
    self.assertFalse(self.exchanged(pb.PLAN_ONE_DEVICE).HasField("plan"))


if __name__ == "__main__":
  client.main(__doc__)
