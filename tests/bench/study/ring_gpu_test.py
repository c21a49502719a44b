#!/usr/bin/env python3
"""How the ring study records what GPUs do, without one."""

import pathlib
import sys
import unittest
from unittest import mock

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'gpu'))

from ring import gpu


class RecorderTest(unittest.TestCase):

    def recorder(self, **more):
        return gpu.Recorder('ring_study', quick=True, **more)

    def test_plans_that_fail_together_run_one_by_one(self):
        def run(program, what, environment, plans, **flags):
            del program, what, environment, flags
            if 'ring' in plans:
                raise RuntimeError('no kernel')
            return [{'plan': plan} for plan in plans]

        with mock.patch.object(gpu, 'run_program', run):
            rows, failed = self.recorder().times(['gather', 'ring', 'zigzag'], 64)
        self.assertEqual(([row['plan'] for row in rows], failed),
                         (['gather', 'zigzag'], {'ring': 'no kernel'}))

    def test_lengths_shrink_and_environments_come_along(self):
        seen = []

        def run(program, what, environment, **flags):
            del program
            seen.append((what, environment['CUDA_DEVICE_MAX_CONNECTIONS'], flags['lens']))
            return [{'plan': 'ring', 'ms': 1.0}]

        with mock.patch.object(gpu, 'run_program', run):
            rows = self.recorder(shrink=512).connections(2)
        self.assertEqual(seen, [('time', str(n), 32) for n in gpu.CONNECTIONS])
        self.assertEqual([row['connections'] for row in rows], list(gpu.CONNECTIONS))

    def test_copies_are_what_gather_takes_longer(self):
        ms = {('one_device', 0): 8.0, ('gather', 0): 5.0, ('one_device', 1): 4.0}
        run = lambda program, what, environment, plans, causal, **flags: [
            {'plan': plan, 'ms': ms[plan, causal]} for plan in plans]
        with mock.patch.object(gpu, 'run_program', run):
            self.assertEqual(self.recorder().copy_and_step(2, 64, causal=False), (1.0, 2.0))
            self.assertEqual(self.recorder().copy_and_step(2, 64, causal=True), (1.0, 1.0))

    def test_hiding_is_found_between_its_ends(self):
        recorder = self.recorder()
        with mock.patch.object(recorder, 'copy_and_step',
                               lambda devices, n, causal: (n, n * n / (3000 if causal else 1700))):
            rows = recorder.hiding(2)
        self.assertEqual([row['what'] for row in rows], list(gpu.HIDING))
        self.assertAlmostEqual(rows[0]['tokens'], 1700, delta=64)
        self.assertAlmostEqual(rows[1]['tokens'], 3000, delta=64)
        self.assertGreater(len(rows[0]['measured']), 4)

    def test_bisect_says_where_it_never_holds_or_always(self):
        self.assertEqual(gpu.bisect(lambda n: True, 512, 65536), 512)
        self.assertEqual(gpu.bisect(lambda n: False, 512, 65536), 65536)

    def test_the_last_run_of_a_trace(self):
        lines = ['kind,device,stream,start_ns,end_ns,bytes,name']
        for start in (0, 50_000_000, 110_000_000):  # three runs
            for device in (0, 1):
                for step in (0, 1):
                    begin = start + 1_000_000 * step + 1000 * device
                    lines.append(f'kernel,{device},7,{begin},{begin + 900_000},0,ForwardKernel<1>')
                lines.append(f'peer,{device},9,{start + 2000},{start + 500_000},64,')
                lines.append(f'copy,{device},9,{start - 500_000},{start - 1000},64,')
            lines.append(f'kernel,0,7,{start - 9_000_000},{start - 8_000_000},0,Fill')
        lines.append('kernel,0,7,1')  # cut off
        spans = gpu.last_run(lines)
        self.assertEqual(len(spans), 6)
        self.assertEqual(spans[0][2], 0)
        self.assertEqual(max(span[3] for span in spans), 1.901)
        for ms in gpu.busy(spans).values():
            self.assertAlmostEqual(ms, 1.8)
        self.assertEqual(gpu.last_run(lines[:1]), [])

    def test_what_fails_says_why_and_the_rest_is_kept(self):
        recorder = self.recorder()
        kept = []
        with mock.patch.multiple(recorder, count=lambda: (2, 'a GPU'), create=True,
                                 table=lambda: {'rows': [], 'failed': {}},
                                 connections=lambda devices: [devices]):
            part = gpu.run(recorder, {'devices': 2, 'device': 'a GPU', 'hiding': ['old']},
                           lambda found: kept.append(dict(found)),
                           ['table', 'connections', 'timelines'])
            self.assertEqual((part['connections'], part['hiding']), ([2], ['old']))
            self.assertEqual(list(part['why_not']), ['timelines'])
            self.assertEqual(len(kept), 3)
            other = gpu.run(recorder, {'devices': 4, 'device': 'a GPU', 'hiding': ['old']},
                            kept.append, ['table'])
            self.assertNotIn('hiding', other)

    def test_one_gpu_has_times_alone(self):
        recorder = self.recorder()
        with mock.patch.multiple(recorder, count=lambda: (1, 'a GPU'),
                                 table=lambda: {'rows': [], 'failed': {}}):
            part = gpu.run(recorder, {}, lambda found: None)
        self.assertIn('table', part)
        self.assertEqual(set(part['why_not']), set(gpu.RECORDINGS) - {'table'})


if __name__ == '__main__':
    unittest.main()
