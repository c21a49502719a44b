#!/usr/bin/env python3
"""What options change in an answer, and what must not.

    python3 tests/python/test_options.py --server=build/release/server/attnd
"""

import numpy as np

import cases
import client
from cases import Case
from client import pb


class OptionsTest(client.ClientTest):

  def test_only_what_is_wanted_comes_back(self):
    case = Case()
    request = case.forward_request(pb)
    request.lse.want = False
    response = self.forward(request)
    self.assertTrue(response.HasField("o"))
    self.assertFalse(response.HasField("lse"))
    request = case.backward_request(pb)
    request.dk.want = False
    request.dv.want = False
    response = self.backward(request)
    self.assertTrue(response.HasField("dq"))
    self.assertFalse(response.HasField("dk"))
    self.assertFalse(response.HasField("dv"))

  def test_gradients_come_as_f32_when_asked(self):
    request = Case(dtype="bf16").backward_request(pb)
    request.dk.dtype = pb.DATA_TYPE_F32
    response = self.backward(request)
    self.assertEqual(response.dq.dtype, pb.DATA_TYPE_BF16)
    self.assertEqual(response.dk.dtype, pb.DATA_TYPE_F32)

  def test_priority_and_deterministic_change_no_bit(self):
    case = Case(q_lens=(70,), kv_lens=(130,), q_heads=4)
    plain = self.forward(case.forward_request(pb))
    for priority in pb.Priority.values():
      request = case.forward_request(pb)
      request.options.priority = priority
      request.options.deterministic = True
      response = self.forward(request)
      self.assertEqual(response.o, plain.o)
      self.assertEqual(response.lse, plain.lse)

  def test_one_device_is_what_there_is_without_a_team(self):
    case = Case(q_lens=(70,), kv_lens=(130,), q_heads=4)
    plain = self.forward(case.forward_request(pb))
    for plan in (pb.PLAN_AUTO, pb.PLAN_ONE_DEVICE):
      request = case.forward_request(pb)
      request.options.plan = plan
      response = self.forward(request)
      self.assertEqual(response.o, plain.o)
      self.assertEqual(response.lse, plain.lse)
      self.assertFalse(response.report.HasField("plan"))

  def test_what_runs_beside_a_request_changes_no_bit(self):
    rng = np.random.default_rng(7)
    alone = []
    for _ in range(12):
      request = cases.random_case(rng).forward_request(pb)
      alone.append((request, self.forward(request)))
    calls = [(self.stub.Forward.future(request, timeout=60), want)
             for _ in range(6) for request, want in alone]
    for call, want in calls:
      got = call.result()
      self.assertEqual(got.o, want.o)
      self.assertEqual(got.lse, want.lse)

  def test_the_report_says_how_it_ran(self):
    case = Case(q_lens=(64,), kv_lens=(96,), q_heads=4, kv_heads=2,
                head_dim=32, value_dim=16)
    for response, multiple in ((self.forward(case.forward_request(pb)), 1.0),
                               (self.backward(case.backward_request(pb)), 2.5)):
      report = response.report
      self.assertTrue(report.device)
      self.assertTrue(report.kernel)
      self.assertNotEqual(report.algorithm, pb.ALGORITHM_UNSPECIFIED)
      self.assertEqual(report.batch_requests, 1)
      # Two per multiply-add, over every pair and head, of both products.
      self.assertEqual(report.flops, multiple * 2 * 64 * 96 * 4 * (32 + 16))
      self.assertGreater(report.phases.compute_ns, 0)
      for phase in ("queue_ns", "upload_ns", "download_ns"):
        self.assertGreaterEqual(getattr(report.phases, phase), 0)
        self.assertLess(getattr(report.phases, phase), 60e9)


if __name__ == "__main__":
  client.main(__doc__)
