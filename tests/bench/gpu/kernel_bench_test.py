#!/usr/bin/env python3
"""What of the benchmark needs neither a GPU nor torch. Usage: kernel_bench_test.py [LIBRARY]"""

import contextlib
import csv
import io
import os
import sys
import tempfile
import unittest

import cases
import kernel_bench
import ours
import report
from report import Row

LIBRARY = None


class Timing:
    def __init__(self, ms, mhz=1980, celsius=40):
        self.ms, self.mhz, self.celsius = ms, mhz, celsius


class CasesTest(unittest.TestCase):

    def test_the_grid_keeps_tokens_and_width(self):
        grid = cases.grid([64, 128, 256], [512, 2048, 8192, 16384])
        self.assertEqual(len(grid), 24)
        for case in grid:
            self.assertEqual(case.batch * case.q_len, 16384)
            self.assertEqual(case.q_heads * case.head_dim, 2048)

    def test_work_is_counted_as_the_papers_do(self):
        full = cases.Case(2048, 2048, 16, 16, batch=8)
        self.assertEqual(full.flops, 4 * 8 * 16 * 2048 * 2048 * 128)
        causal = cases.Case(2048, 2048, 16, 16, batch=8, causal=True)
        self.assertEqual(causal.flops * 2, full.flops)
        self.assertEqual(causal.backward_flops, 2.5 * causal.flops)
        self.assertEqual(cases.decode()[0].kv_bytes, 2 * 131072 * 8 * 128 * 2)

    def test_fixed_orders_are_compared_where_many_add(self):
        rows = cases.deterministic()
        self.assertEqual({case.head_dim for case in rows}, {128})
        self.assertEqual({(case.q_len, case.causal) for case in rows},
                         {(n, c) for n in (2048, 4096, 8192, 16384) for c in (False, True)})

    def test_heads_are_grouped(self):
        self.assertTrue(all(case.q_heads == 4 * case.kv_heads for case in cases.grouped()))

    def test_the_group_is_always_the_same_and_unlike(self):
        group = cases.group()
        self.assertEqual(group, cases.group())
        self.assertEqual(len(group), 64)
        self.assertGreater(len(set(group)), 60)
        self.assertTrue(all(1 <= c.q_len <= c.kv_len <= 512 for c in group))
        self.assertTrue(all(c.q_heads % c.kv_heads == 0 for c in group))
        self.assertEqual({(c.causal, c.left >= 0) for c in group},
                         {(False, False), (True, False), (True, True)})

    def test_the_large_group_is_always_the_same(self):
        group = cases.large_group()
        self.assertEqual(group, cases.large_group())
        self.assertEqual(len(group), 64)
        self.assertEqual(sum(c.causal for c in group), 32)
        self.assertTrue(all(64 <= c.q_len == c.kv_len <= 8192 for c in group))
        self.assertTrue(all(4 <= c.q_heads == c.kv_heads <= 32 for c in group))
        self.assertLess(min(c.q_len for c in group), 100)
        self.assertGreater(max(c.q_len for c in group), 6000)

    def test_a_repeated_problem_fills_a_gpu(self):
        for case in cases.large_group():
            many = cases.repeated(case)
            tiles = many.batch * many.q_heads * -(-many.q_len // 128)
            self.assertGreaterEqual(tiles, 528)
            self.assertEqual(many.flops, many.batch * case.flops)


def grid_row(name, ours_value, fa2=100.0, cudnn=200.0, section='grid'):
    return Row(section, name, 'TFLOP/s', {'ours': ours_value, 'fa2': fa2, 'cudnn': cudnn})


class ReportTest(unittest.TestCase):

    def test_means(self):
        rows = [grid_row('bf16 d64 b1 h1/1 1x1 full', 50),
                grid_row('bf16 d64 b1 h1/1 2x2 full', 200),
                grid_row('bf16 d128 b1 h1/1 1x1 causal', 100)]
        lines = report.means(rows, 'ours', ('fa2', 'cudnn'))
        self.assertIn('geometric mean, all: ours/fa2 1.000, ours/cudnn 0.500', lines)
        self.assertIn('geometric mean, d64 full: ours/fa2 1.000, ours/cudnn 0.500', lines)
        self.assertEqual(len(lines), 3)

    def test_a_line_says_what_was_not_measured(self):
        row = Row('grid', 'name', 'TFLOP/s', {'ours': 90, 'fa2': 100}, notes=['cudnn refused: no'])
        text = report.line(row, ('ours', 'fa2', 'cudnn'), ('fa2', 'cudnn'))
        self.assertEqual(text.split(), 'name 90.0 100.0 - 0.900 - # cudnn refused: no'.split())
        titles = report.header('grid', 'TFLOP/s', ('ours', 'fa2', 'cudnn'), ('fa2', 'cudnn'))
        self.assertEqual(len(titles), len(text.split('  #')[0]))

    def test_a_clock_that_moves_is_flagged(self):
        row = grid_row('name', 90)
        row.timings = {'ours': Timing(1, 1980), 'fa2': Timing(1, 1900)}
        self.assertIsNone(row.clock_note())
        row.timings['cudnn'] = Timing(1, 1500)
        self.assertIn('1500 to 1980', row.clock_note())
        row.timings = {'ours': Timing(1, 0), 'fa2': Timing(1, 0)}
        self.assertIsNone(row.clock_note())

    def test_bars_of_what_was_run(self):
        self.assertEqual(report.bars([]), [])
        rows = [grid_row('a', 95), Row('decode', 'b', 'GB/s', {'ours': 84, 'cudnn': 100}),
                Row('group', 'graph', 'problems/ms', {'one_call': 21, 'one_by_one': 10}),
                Row('group', 'calls', 'problems/ms', {'one_call': 1, 'one_by_one': 10}),
                Row('setup', '8 problems', 'us', {'ours': 27}, size=8)]
        self.assertEqual([met for _, met in report.bars(rows)], [True, False, True, True])
        rows[-1].values['ours'] = 28.5
        self.assertEqual([met for _, met in report.bars(rows)], [True, False, True, False])

    def test_hoppers_bars(self):
        self.assertEqual(report.hopper_bars([]), [])
        rows = [grid_row('bf16 d64 b1 h1/1 1x1 full', 190),
                grid_row(report.LONGEST, 212),
                grid_row('bf16 d96 b1 h1/1 1x1 full', 188),
                Row('decode', 'b', 'GB/s', {'ours': 98, 'cudnn': 100}),
                Row('large_group', 'c', 'TFLOP/s', {'one_call': 90, 'each_alone': 100}),
                Row('ceiling', report.MATMUL, 'TFLOP/s', {'machine': 260})]
        self.assertEqual([met for _, met in report.hopper_bars(rows)],
                         [True, True, True, True, False, True, False])
        del rows[-1]
        self.assertIn('not measured', [text for text, _ in report.hopper_bars(rows)][2])

    def test_hoppers_bars_of_backward(self):
        row = lambda name, value: grid_row(name, value, section='backward')
        rows = [row('bf16 d64 b1 h1/1 1x1 full', 184), row('bf16 d64 b1 h1/1 1x1 causal', 183),
                row(report.LONGEST, 199), row('bf16 d256 b1 h8/8 16384x16384 full', 250),
                Row('deterministic', 'a', 'TFLOP/s', {'deterministic': 85, 'ours': 100}),
                Row('deterministic', 'b', 'TFLOP/s', {'deterministic': 84, 'ours': 100})]
        self.assertEqual([met for _, met in report.hopper_bars(rows)],
                         [False, True, False, False, True, True, False])
        for row in rows[:4]:
            row.values['ours'] += 20
        self.assertTrue(report.hopper_bars(rows)[0][1])
        self.assertEqual(report.bars(rows), [])

    def test_the_bar_of_the_kernels_for_any_gpu(self):
        rows = [Row('sm80_backward', 'a', 'TFLOP/s', {'any_gpu': 81, 'fa2': 100}),
                Row('sm80_backward', 'b', 'TFLOP/s', {'any_gpu': 100, 'fa2': 100})]
        self.assertEqual([met for _, met in report.bars(rows)], [True])
        rows[0].values['any_gpu'] = 80
        self.assertEqual([met for _, met in report.bars(rows)], [False])
        del rows[1].values['any_gpu']
        self.assertIn('not measured', report.bars(rows)[0][0])

    def test_what_was_not_measured_is_missed(self):
        rows = [grid_row('a', 95), Row('grid', 'b', 'TFLOP/s', {'fa2': 100}),
                Row('decode', 'c', 'GB/s', {'ours': 100})]
        self.assertEqual([met for _, met in report.bars(rows)], [False, False])

    def test_the_file_has_every_number(self):
        row = grid_row('a', 95)
        row.timings = {'ours': Timing(0.5, 1980, 41)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'out.csv')
            report.write_csv(path, [row])
            with open(path, newline='') as file:
                lines = list(csv.DictReader(file))
        self.assertEqual([line['side'] for line in lines], ['ours', 'fa2', 'cudnn'])
        self.assertEqual(lines[0]['ms'], '0.50000')
        self.assertEqual(lines[1]['ms'], '')


class Recorder:
    """A module of sections: says what it was asked for."""

    def __init__(self, name):
        self.name = name
        self.arguments = []

    def __getattr__(self, section):
        def called(*arguments):
            self.arguments.append(arguments)
            return f'{self.name}.{section}'
        return called


class CommandTest(unittest.TestCase):

    def test_algorithms_imply_their_rows(self):
        options = kernel_bench.parse(['--lib', 'x', '--rows', 'grid', '--algorithms', 'naive'])
        self.assertEqual(options.rows, ['grid', 'baselines'])

    def test_an_unknown_section_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            with self.assertRaises(SystemExit):
                kernel_bench.parse(['--lib', 'x', '--rows', 'grid,typo'])
        self.assertIn('typo', errors.getvalue())

    def planned(self, *arguments):
        """Names of the sections, in order."""
        options = kernel_bench.parse(['--lib', 'x', *arguments])
        sections = [*kernel_bench.plan_forward(options, None, Recorder('forward')),
                    *kernel_bench.plan_backward(options, None, Recorder('backward'))]
        return [rows for rows, _, _ in sections]

    def test_each_direction_can_be_run_alone(self):
        self.assertEqual(self.planned('--rows', 'backward,deterministic'),
                         ['backward.grid', 'backward.deterministic'])
        self.assertEqual(self.planned('--rows', 'grid,decode'), ['forward.grid', 'forward.decode'])

    def test_all_but_the_baselines_run_unless_told(self):
        self.assertEqual(len(self.planned()), len(kernel_bench.SECTIONS))  # the group is two
        self.assertNotIn('forward.baselines', self.planned())

    def test_the_kernels_for_any_gpu_run_where_their_bar_is(self):
        options = kernel_bench.parse(['--lib', 'x', '--rows', 'sm80_backward'])
        calls = Recorder('backward')
        list(kernel_bench.plan_backward(options, None, calls))
        self.assertEqual(calls.arguments[0][2:5], ([64, 128], options.seqs, 'any_gpu'))

    def test_only_check_fails(self):
        rows = [grid_row('a', 10)]
        for arguments, status in (([], 0), (['--check'], 1)):
            options = kernel_bench.parse(['--lib', 'x', *arguments])
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(kernel_bench.finish(rows, options), status)
            self.assertIn('MISSED: grid', out.getvalue())


class FakeTensor:
    """As much of torch.Tensor as a view needs."""

    def __init__(self, *shape):
        self._shape = shape

    def data_ptr(self):
        return 4096

    def size(self, i):
        return self._shape[i]

    def stride(self, i):
        stride = 1
        for size in self._shape[i + 1:]:
            stride *= size
        return stride


class FakeStream:
    cuda_stream = 0


class LibraryTest(unittest.TestCase):
    """That both sides mean the same structures: no plan is run."""

    def setUp(self):
        if LIBRARY is None:
            self.skipTest('no library was given')
        self.library = ours.Library(LIBRARY)

    def problem(self, case):
        q = FakeTensor(case.batch, case.q_len, case.q_heads, case.head_dim)
        k = FakeTensor(case.batch, case.kv_len, case.kv_heads, case.head_dim)
        return ours.problem(case, q, k, k, q, FakeTensor(case.batch, case.q_heads, case.q_len))

    def gradients(self, case):
        problem = self.problem(case)
        q = FakeTensor(case.batch, case.q_len, case.q_heads, case.head_dim)
        k = FakeTensor(case.batch, case.kv_len, case.kv_heads, case.head_dim)
        return ours.gradients(problem, q, q, k, k)

    def test_a_group_makes_a_plan_of_gradients(self):
        problems = [self.gradients(case) for case in cases.group()]
        for algorithm in ('auto', 'any_gpu'):
            with self.library.backward_plan(problems, FakeStream(), algorithm):
                pass

    def test_bad_gradients_are_refused_with_a_reason(self):
        problem = self.gradients(cases.Case(8, 8, 4, 2))
        problem.d_o.data = None  # after all of forward's problem: the layouts agree
        with self.assertRaisesRegex(ours.Refused, 'the gradient of O is NULL'):
            self.library.backward_plan([problem], FakeStream())
        problem = self.gradients(cases.Case(8, 8, 4, 2))
        problem.forward.lse = None
        with self.assertRaisesRegex(ours.Refused, 'backward needs LSE'):
            self.library.backward_plan([problem], FakeStream())

    def test_a_group_makes_a_plan(self):
        with self.library.plan([self.problem(case) for case in cases.group()], FakeStream()):
            pass

    def test_a_bad_problem_is_refused_with_a_reason(self):
        problem = self.problem(cases.Case(8, 8, 4, 2))
        problem.kv_heads = 3
        with self.assertRaisesRegex(ours.Refused, 'q_heads must be a multiple of kv_heads'):
            self.library.plan([problem], FakeStream())
        problem = self.problem(cases.Case(8, 8, 4, 2))
        problem.dtype = 7  # the last but one member: the layouts agree
        with self.assertRaisesRegex(ours.Refused, 'dtype'):
            self.library.plan([problem], FakeStream())


if __name__ == '__main__':
    if len(sys.argv) > 1:
        LIBRARY = sys.argv.pop(1)
    unittest.main()
