#!/usr/bin/env python3
"""What the ring study computes, runs, keeps and shows, without a GPU. Usage:
ring_test.py [RING_STUDY]"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'gpu'))

import numpy as np
import ring_results
import study
from ring import accuracy, drawing, formulas, gpu, page, parts, plans

PROGRAM = None


class FormulasTest(unittest.TestCase):

    def test_merges_are_those_of_the_whole(self):
        x = np.array([[1.0, -2.0, 0.5, 3.0]])
        v = np.arange(8.0).reshape(4, 2)
        over = lambda x, v: (formulas.softmax(x) @ v, formulas.lse(x)[:, None])
        for merge in (formulas.merge_by_exp, formulas.merge_by_sigmoid):
            out, lse = merge(*over(x[:, :1], v[:1]), *over(x[:, 1:], v[1:]))
            np.testing.assert_allclose(out, over(x, v)[0], rtol=1e-14)
            np.testing.assert_allclose(lse, over(x, v)[1], rtol=1e-14)
        out, _ = formulas.merge_as_derived(*over(x[:, :1], v[:1]), *over(x[:, 1:], v[1:]))
        self.assertGreater(np.abs(out - over(x, v)[0]).max(), 0.1)

    def test_finds_where_f32_overflows(self):
        end = formulas.overflows_from(formulas.merge_by_exp)
        self.assertAlmostEqual(end, np.log(float(np.finfo(np.float32).max)), places=4)
        self.assertIsNone(formulas.overflows_from(formulas.merge_by_sigmoid))

    def test_tokens_of_a_rank(self):
        tokens = np.arange(64)
        self.assertEqual(formulas.striped_tokens(tokens, 1, 8).tolist(),
                         [1, 9, 17, 25, 33, 41, 49, 57])
        self.assertEqual(formulas.zigzag_tokens(tokens, 1, 8).tolist(),
                         [4, 5, 6, 7, 56, 57, 58, 59])

    def test_what_comes_of_them_is_as_published(self):
        found = formulas.run()
        self.assertAlmostEqual(found['merges']['example']['sigmoid'], 2.463, places=3)
        self.assertAlmostEqual(found['merges']['example']['derived'], 4.537, places=3)
        self.assertEqual(found['merges']['empty_is_nan'], {'exp': True, 'sigmoid': True})
        self.assertEqual([row['shards'] for row in found['exact']], list(range(1, 9)))
        self.assertGreater(found['softmax']['error_by_lse'], 10 * found['softmax']['error'])


class ScheduleTest(unittest.TestCase):

    STEPS = [{'device': 0, 'after': [], 'do': 'upload'},
             {'device': 0, 'after': [0], 'do': 'pull', 'bytes': 30},
             {'device': 0, 'after': [0], 'do': 'compute', 'flops': 20},
             {'device': 0, 'after': [1], 'do': 'compute', 'flops': 10},
             {'device': 1, 'after': [3], 'do': 'compute', 'flops': 10},
             {'device': 1, 'after': [4], 'do': 'download'}]

    def test_a_step_waits_for_others_and_for_its_device(self):
        times = plans.schedule(self.STEPS, flops=10, link=10, latency=1)
        self.assertEqual(times, [(0, 0), (0, 4), (0, 2), (4, 5), (5, 6), (6, 6)])
        times = plans.schedule(self.STEPS, flops=10, link=30, latency=0)
        self.assertEqual(times[3], (2, 3))  # it has come, but the device computes

    def test_a_summary_has_steps_of_the_ring_and_totals(self):
        kept = plans.summary(ring_results.trace('ring'))
        self.assertEqual([(c['device'], c['step'], c['blocks']) for c in kept['computes']][-1],
                         (3, 3, [0]))
        self.assertEqual(plans.totals(kept, 'pairs'), [136, 136 + 256, 136 + 512, 136 + 768])
        self.assertEqual(len(kept['pulls']), 6)
        brief = plans.brief(kept)
        self.assertEqual(brief['pulled_bytes'], 6 * 4 * 16 * 128)
        self.assertNotIn('computes', brief)


class PageTest(unittest.TestCase):

    def test_nothing_recorded_is_said_and_only_then(self):
        text = page.render({})['ring.md']
        self.assertEqual(text.count('Not recorded yet'), len(gpu.RECORDINGS))
        self.assertIn('not measured here', text)
        text = page.render(ring_results.every())['ring.md']
        self.assertNotIn('Not recorded yet', text)
        self.assertNotIn('not measured here', text)
        results = ring_results.every()
        del results['gpu']['hiding']
        results['gpu']['why_not'] = {'hiding': 'no time'}
        self.assertIn('Not recorded yet: no time.', page.render(results)['ring.md'])

    def test_every_row_of_a_table_has_its_columns(self):
        for results in ({}, ring_results.every()):
            columns = None
            for line in page.render(results)['ring.md'].splitlines():
                if not line.startswith('|'):
                    columns = None
                    continue
                columns = columns or line.count('|')
                self.assertEqual(line.count('|'), columns, line)

    def test_what_runs_as_another_plan_is_not_in_its_place(self):
        results = ring_results.every()
        self.assertNotIn('runs as another plan', page.render(results)['ring.md'])
        accuracy.row(results['accuracy'], 'backward', 'zigzag')['ran_as'] = 'gather'
        text = page.render(results)['ring.md']
        self.assertIn('backward of `zigzag` (as `gather`)', text)
        self.assertEqual(text.count('| `zigzag` | dQ |'), 0)
        self.assertEqual(text.count('| `zigzag` | O |'), 1)

    def test_plots_are_on_the_page_and_the_same_each_time(self):
        drawn = drawing.draw(ring_results.every())
        self.assertEqual(set(drawn), {'ring_timelines.svg', 'ring_ranks.svg', 'ring_forward.svg',
                                      'ring_backward.svg', 'ring_recorded.svg'})
        text = page.render(ring_results.every())['ring.md']
        for name, svg in drawn.items():
            xml.fromstring(svg)
            self.assertIn(f']({name})', text)
        self.assertEqual(drawn, drawing.draw(ring_results.every()))
        self.assertEqual(drawing.draw({}), {})

    def test_results_are_kept_as_they_are(self):
        results = ring_results.every()
        self.assertEqual(json.loads(parts.dump(results)), results)


def run(*arguments):
    """The exit status of the command, which prints nothing here."""
    with contextlib.redirect_stdout(io.StringIO()):
        with mock.patch.object(sys, 'argv', ['study.py', *arguments]):
            return study.main()


class CommandTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / 'study'

    def read(self, name):
        return (self.out / name).read_text(encoding='utf-8')

    def test_what_cannot_run_says_why_and_leaves_what_was_there(self):
        self.assertEqual(run('--part=ring', '--out', str(self.out)), 1)
        self.assertIn('no program was given (--ring)', self.read('ring.md'))
        self.assertFalse((self.out / 'README.md').exists())
        everything = ring_results.every()
        (self.out / 'ring.json').write_text(json.dumps(everything), encoding='utf-8')
        self.assertEqual(run('--part=ring', '--ring_parts=plans,accuracy,gpu', '--out',
                             str(self.out)), 1)
        self.assertEqual(json.loads(self.read('ring.json')), everything)

    def test_unknown_parts_are_refused(self):
        for flag in ('--ring_parts=plans,typo', '--ring_gpu=typo'):
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                with self.assertRaises(SystemExit):
                    study.parse(['--out', 'x', flag])
            self.assertIn('typo', errors.getvalue())


class CommittedPagesTest(unittest.TestCase):

    def test_pages_are_what_their_results_say(self):
        docs = pathlib.Path(__file__).resolve().parents[3] / 'docs' / 'study'
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            for name in ('results.json', 'ring.json'):
                (out / name).write_bytes((docs / name).read_bytes())
            self.assertEqual(run('--render', '--out', folder), 0)
            for path in sorted(out.iterdir()):
                drawn, committed = (p.read_text(encoding='utf-8') for p in (path, docs / path.name))
                version = lambda text: text[text.find('Matplotlib v'):].partition(',')[0]
                if path.suffix == '.svg' and version(drawn) != version(committed):
                    continue  # it draws otherwise
                self.assertEqual(drawn, committed, path.name)


class ProgramTest(unittest.TestCase):

    def setUp(self):
        if PROGRAM is None:
            self.skipTest('no program was given')

    def traces(self, **flags):
        return {row['plan']: row for row in plans.run_program(PROGRAM, 'trace', **flags)}

    def test_pairs_and_tiles_are_those_of_the_mask(self):
        length, devices, tile = 700, 3, 128
        for kind, trace in self.traces(device=f'cpu*{devices}', lens=length, heads=2,
                                       plans=plans.KINDS).items():
            kept = plans.summary(trace)
            self.assertEqual(sum(plans.totals(kept, 'pairs')), 2 * length * (length + 1) // 2, kind)
            if kind == 'gather':
                continue
            rows = [sorted(plan_tokens(trace['rows'][d])) for d in range(devices)]
            for compute in kept['computes']:
                if kind == 'zigzag':
                    continue  # its rows are two runs, each with tiles of its own
                mine, block = rows[compute['device']], rows[compute['blocks'][0]]
                pairs = {(i // tile, j // tile) for i, row in enumerate(mine)
                         for j, column in enumerate(block) if column <= row}
                count = sum(column <= row for row in mine for column in block)
                self.assertEqual((compute['pairs'], compute['tiles']), (2 * count, 2 * len(pairs)))

    def test_the_ring_is_as_listed_and_copies_no_more_than_is_seen(self):
        kept = plans.summary(self.traces(device='cpu*4', lens=512, heads=1, plans='ring')['ring'])
        from ring import plan_verdicts
        steps, in_order = plan_verdicts.steps_of(kept)
        self.assertTrue(in_order)
        self.assertEqual(steps, plan_verdicts.listed(4, True))
        self.assertEqual(len(kept['pulls']), 4 * 3 // 2)

    def test_results_are_compared_with_one_device_and_float64(self):
        part = accuracy.run(PROGRAM, quick=True)
        gather = accuracy.row(part, 'forward', 'gather')
        self.assertEqual([of['max'] for of in gather['tensors'].values()], [0, 0])
        self.assertEqual(gather['copied_bytes'], gather['planned_pulls'])
        for allocated, planned in zip(gather['allocated_bytes'], gather['planned_bytes']):
            self.assertLessEqual(abs(allocated - planned), 4096)
        for op in accuracy.OPS:
            rounded, kept = (accuracy.row(part, op, 'blocks', partials)
                             for partials in ('bf16', 'f32'))
            for name in accuracy.TENSORS[op]:
                of = kept['tensors'][name]
                self.assertLess(of['rms'], 1e-2 if name != 'lse' else 1e-5)
                self.assertEqual(len(of['ranks']), 8)
                self.assertGreaterEqual(of['max'], of['mean'])
                if name != 'lse':
                    self.assertGreater(rounded['tensors'][name]['rms'], of['rms'])
        # Single blocks in f32 are put together as the plan does.
        ring, blocks = (accuracy.row(part, 'forward', plan) for plan in ('ring', 'blocks'))
        self.assertAlmostEqual(ring['tensors']['o']['rms'] / blocks['tensors']['o']['rms'], 1,
                               places=2)

    def test_times_have_what_the_page_shows(self):
        rows = plans.run_program(PROGRAM, 'time', device='cpu*2', lens='64,96', heads=2, dim=32,
                                 ops='forward,backward', plans=gpu.PLANS, rounds=1, settle_ms=0,
                                 timed_ms=0)
        self.assertEqual(len(rows), 2 * 2 * len(gpu.PLANS))
        for row in rows:
            self.assertTrue(row['right'], row)
            self.assertEqual(len(row['kernel_ms']), row['devices'])
            self.assertEqual(row['pulled_bytes'], row['planned_pulls'])

    def test_what_is_no_flag_is_refused(self):
        for arguments in ((), ('typo',), ('trace', '--plans=typo'), ('trace', '--lens=0'),
                          ('time', '--causal=2'), ('trace', '--typo=1')):
            ended = subprocess.run([PROGRAM, *arguments], capture_output=True, check=False)
            self.assertEqual(ended.returncode, 2, arguments)
        with self.assertRaisesRegex(RuntimeError, 'typo'):
            plans.run_program(PROGRAM, 'trace', plans='typo')


def plan_tokens(runs):
    return [first + i * step for first, count, step in runs for i in range(count)]


if __name__ == '__main__':
    if len(sys.argv) > 1 and not sys.argv[1].startswith('-'):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
